"""`hopsctl config check`, `show` and `explain`."""

from __future__ import annotations

import json
import pwd
import sys
import textwrap
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path

import click

from hopsd.config import DEFAULT_PATH, Config, load
from hopsd.config.reference import options_by_path, settings, toml, toml_value
from hopsd.ctl.admin.config_check import cluster_problems, file_problems
from hopsd.ctl.admin.node_check import NodeInstallation, problems, read_site, submit_script_problems
from hopsd.ctl.shell import completion as complete
from hopsd.ctl.terminal import complain, say
from hopsd.errors import InputError, SlurmError
from hopsd.slurm.accounting.rights import missing_rights
from hopsd.slurm.ask import slurm_conf
from hopsd.slurm.command import SlurmCommands

INDENT = 14
WITHOUT_SLURM = " as far as can be said without Slurm"
"""Appended to a verdict that could not be checked against Slurm."""

_file = click.argument(
    "path", metavar="[FILE]", type=click.Path(path_type=Path), default=DEFAULT_PATH
)


@click.group()
def config() -> None:
    """Check, show or explain hopsd.toml; FILE is /etc/hops/hopsd.toml by default."""


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
@click.option(
    "--account",
    default="hops",
    show_default=True,
    help="hopsd's account, whose rights are checked.",
)
def check(path: Path, folder: Path, account: str, *, node: bool) -> None:
    """Report every error in FILE; with --node also what is wrong with this machine's part of hops.

    Partitions and nodes in FILE are looked up in Slurm; if Slurm does not answer, the last line
    says that they were not. The machine's site.sh, scripts and folders are compared with FILE, if
    there is one, with slurm.conf and with this release. Without --node, the rights of hopsd's
    account in Slurm are checked, too.

    \b
    Examples:
      hopsctl config check
      hopsctl config check --node

    Exit codes: 0 good, 1 something is wrong with the machine or the account, 2 with FILE.
    """
    config = load(path) if path.exists() or not node else None
    commands = SlurmCommands(5.0)
    try:
        conf = slurm_conf(commands)
    except SlurmError as error:
        conf = None
        complain(f"cannot ask Slurm: {str(error).splitlines()[0]}")
    if config is not None:
        for warning in config.warnings:
            complain(warning)
        _check_settings(config, path, commands, conf)
    if node:
        _check_node(folder, config, conf)
    elif config is not None and conf is not None:
        _check_rights(account, commands, conf)


def _check_settings(
    config: Config, path: Path, commands: SlurmCommands, conf: Mapping[str, str] | None
) -> None:
    """Check FILE's settings; ``conf`` has slurm.conf's keys, None if Slurm does not answer."""
    wrong, has_slurm = list(file_problems(config)), conf is not None
    if conf is not None:
        try:
            wrong += cluster_problems(config, commands, conf)
        except SlurmError as error:
            has_slurm = False
            complain(f"cannot check partitions and nodes: {str(error).splitlines()[0]}")
    for sentence in wrong:
        complain(f"{path}: {sentence}")
    if wrong:
        sys.exit(2)
    suffix = "" if has_slurm else WITHOUT_SLURM
    say(f"{path}: good{suffix}, {len(config.explicit_keys)} settings given")


def _check_rights(account: str, commands: SlurmCommands, conf: Mapping[str, str]) -> None:
    """Check the rights of hopsd's account, if this machine has it."""
    try:
        uid = pwd.getpwnam(account).pw_uid
    except KeyError:
        return
    try:
        missing = [*missing_rights(commands, uid, account), *submit_script_problems(conf)]
    except SlurmError as error:
        complain(f"cannot check rights in Slurm: {str(error).splitlines()[0]}")
        return
    for sentence in missing:
        complain(sentence)
    if missing:
        sys.exit(1)
    say(f"{account} may do in Slurm all that hopsd needs")


def _check_node(folder: Path, config: Config | None, conf: Mapping[str, str] | None) -> None:
    site_settings = read_site(folder / "site.sh")
    site = NodeInstallation(folder, config, conf, settings=site_settings)
    wrong = list(problems(site))
    for sentence in wrong:
        complain(sentence)
    if wrong:
        sys.exit(1)
    say(f"{folder}: good" + ("" if conf is not None else WITHOUT_SLURM))


@config.command()
@_file
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of TOML.")
def show(path: Path, as_json: bool) -> None:
    """Show the settings in force with FILE, and whether each is from the file or the default.

    Passwords are hidden.

    \b
    Examples:
      hopsctl config show
      hopsctl config show build/demo/hopsd.toml --json
    """
    config = load(path)
    if not as_json:
        print(toml(config))
        return
    values = {s.path: {"value": s.value, "origin": s.origin} for s in settings(config)}
    print(json.dumps({"file": str(path), "settings": values}, indent=2))


@config.command()
@click.argument("setting", shell_complete=complete.settings)
def explain(setting: str) -> None:
    """Explain what SETTING, such as plan.policy, does, and which values it accepts.

    \b
    Examples:
      hopsctl config explain plan.policy
      hopsctl config explain daemon.round_seconds

    Exit codes: 0 done, 2 there is no such setting.
    """
    options = options_by_path()
    if setting not in options:
        similar = get_close_matches(setting, options, 3, 0.5)
        hint = f"did you mean {' or '.join(similar)}? " if similar else ""
        raise InputError(f"no setting {setting!r}; {hint}`man hopsd.toml` has them all")
    option = options[setting]
    for label, text in (
        ("what it does", option.doc),
        ("accepted", option.accepted_values),
        ("default", toml_value(option.plain(option.default))),
    ):
        lines = textwrap.wrap(text, 80 - INDENT, break_on_hyphens=False, break_long_words=False)
        say(f"{label + ':':{INDENT}}" + ("\n" + " " * INDENT).join(lines))
