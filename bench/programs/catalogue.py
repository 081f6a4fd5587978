"""The programs to time, and where to insert clocks into a copy of each."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LISTS = (
    *("catalogue", "unusual", "further", "fresh", "later"),
    *("newest", "freshest", "latest", "untried", "unfamiliar", "unmet", "firstlook", "strangers"),
    *("outsiders", "newcomers"),
)
"""``unusual`` has programs with rare kinds of loops, not known when the plugin was written."""


@dataclass(frozen=True)
class Program:
    """A script of a public repository (``repo``, "owner+name"), or one of ``inside`` that drives
    the training loop of ``package``.

    - ``clocks``: pairs of a text and code; the code is inserted after each line that contains the
      text (or starts with it, if it is indented), at the same depth. ``clocked``: the file to
      insert into, if it is not the script.
    - ``edits``: replacements in the script, so that it runs on a CPU and with synthetic data.
      ``first``: code to run before the script.
    - ``steps``: maximum number of steps to clock. ``sample``: what a reader of the program would
      count as a sample.
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
    sample: str = ""
    environment: dict[str, str] = field(default_factory=dict)


def programs(name: str = LISTS[0]) -> list[Program]:
    """The programs of one of :data:`LISTS`."""
    with Path(__file__).with_name(f"{name}.toml").open("rb") as file:
        entries: list[dict[str, Any]] = tomllib.load(file)["program"]
    return [Program(**entry) for entry in entries]
