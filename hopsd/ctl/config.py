"""`hopsctl config check` and `hopsctl config show`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from hopsd.config import DEFAULT_PATH, Config, load
from hopsd.config.reference import settings, toml
from hopsd.ctl.node_check import Site, problems, read_site
from hopsd.ctl.terminal import complain, say
from hopsd.errors import SlurmError
from hopsd.slurm.ask import slurm_conf
from hopsd.slurm.command import SlurmCommands

_file = click.argument(
    "path", metavar="[FILE]", type=click.Path(path_type=Path), default=DEFAULT_PATH
)


@click.group()
def config() -> None:
    """Check or show hopsd.toml; FILE is /etc/hops/hopsd.toml where it is not given."""


@config.command()
@_file
@click.option("--node", is_flag=True, help="Check this machine's part of hops as well.")
@click.option(
    "--scripts",
    "folder",
    type=click.Path(path_type=Path),
    default=Path("/etc/hops"),
    show_default=True,
    help="With --node: where prolog.sh and the others are.",
)
def check(path: Path, folder: Path, *, node: bool) -> None:
    """Tell every error in FILE; with --node also what is wrong with this machine's part of hops.

    Its site.sh, scripts and folders are compared with FILE, where there is one, with slurm.conf
    and with this release. Exit codes: 0 good, 1 something is wrong with the machine, 2 with FILE.
    """
    loaded = load(path) if path.exists() or not node else None
    if loaded is not None:
        say(f"{path}: good, {len(loaded.given)} settings given")
    if node:
        _check_node(folder, loaded)


def _check_node(folder: Path, loaded: Config | None) -> None:
    said = read_site(folder / "site.sh")
    try:
        conf = slurm_conf(SlurmCommands(5.0))
    except SlurmError as error:
        conf = None
        complain(f"slurm.conf is not looked at: {str(error).splitlines()[0]}")
    site = Site(folder, loaded, conf, said=said)
    wrong = list(problems(site))
    for sentence in wrong:
        complain(sentence)
    if wrong:
        sys.exit(1)
    say(f"{folder}: good")


@config.command()
@_file
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of TOML.")
def show(path: Path, as_json: bool) -> None:
    """What is in force with FILE, and whether a value is the file's or the default.

    Passwords are hidden.
    """
    loaded = load(path)
    if not as_json:
        print(toml(loaded))
        return
    values = {s.path: {"value": s.value, "origin": s.origin} for s in settings(loaded)}
    print(json.dumps({"file": str(path), "settings": values}, indent=2))
