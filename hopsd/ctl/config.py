"""`hopsctl config check` and `hopsctl config show`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from hopsd.config import DEFAULT_PATH, load
from hopsd.config.reference import settings, toml

_file = click.argument(
    "path", metavar="[FILE]", type=click.Path(path_type=Path), default=DEFAULT_PATH
)


@click.group()
def config() -> None:
    """Check or show hopsd.toml; FILE is /etc/hops/hopsd.toml where it is not given."""


@config.command()
@_file
def check(path: Path) -> None:
    """Tell every error in FILE. Exit codes: 0 good, 2 not."""
    given = len(load(path).given)
    print(f"{path}: good, {given} settings given")


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
