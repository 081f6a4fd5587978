"""Detects arriving and ending jobs by slurmctld's own counters: sdiag(1) costs it hardly any time,
however many jobs there are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from hopsd.errors import SlurmError
from hopsd.slurm.command import SlurmCommands

_COUNTER = re.compile(r"^Jobs (submitted|completed|canceled|failed):\s*(\d+)\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Activity:
    """Jobs submitted and ended since slurmctld last reset its counters, as at midnight (UTC)."""

    submitted: int
    ended: int


def read_activity(commands: SlurmCommands) -> Activity:
    """Read the counters.

    Raises:
        SlurmError: slurmctld does not answer, or sdiag's output lacks a counter.
    """
    counters = {name: int(value) for name, value in _COUNTER.findall(commands.run("sdiag"))}
    if len(counters) != 4:
        raise SlurmError(
            f"sdiag: counters {', '.join(counters) or 'none'}; expected all four of jobs"
        )
    return Activity(counters.pop("submitted"), sum(counters.values()))
