"""Which programs are timed, and where a hand would put clocks into a copy of each."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LISTS = ("catalogue", "unusual", "further")
"""``unusual``: programs with loops of rare kinds, seen for the first time when they were listed."""


@dataclass(frozen=True)
class Program:
    """A script of a public repository (``repo``, "owner+name"), or one of ``inside`` that drives
    the training loop of ``package``.

    ``clocks``: behind each line that holds the first text (begins with it, where that is indented)
    the second is written in, as deep. ``clocked``: the file that gets them, where it is not the
    script. ``edits``: texts of the script to replace, so that it runs on a CPU and on made-up data;
    ``first``: what is run ahead of it. ``steps``: how many are clocked at most.
    """

    name: str
    script: str
    repo: str = ""
    package: str = ""
    clocked: str = ""
    clocks: tuple[tuple[str, str], ...] = ()
    edits: tuple[tuple[str, str], ...] = ()
    args: tuple[str, ...] = ()
    first: str = ""
    ranks: int = 1
    steps: int = 60
    environment: dict[str, str] = field(default_factory=dict)


def programs(name: str = LISTS[0]) -> list[Program]:
    """The programs of one of :data:`LISTS`."""
    with Path(__file__).with_name(f"{name}.toml").open("rb") as file:
        found: list[dict[str, Any]] = tomllib.load(file)["program"]
    return [Program(**one) for one in found]
