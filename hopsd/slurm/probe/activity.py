"""Whether jobs came or went, from slurmctld's own counters: sdiag(1) takes it no time, however
many jobs there are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from hopsd.errors import SlurmError
from hopsd.slurm.command import SlurmCommands

_COUNTER = re.compile(r"^Jobs (submitted|completed|canceled|failed):\s*(\d+)\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Activity:
    """Jobs submitted and ended since slurmctld last set its counters to 0, as at midnight (UTC)."""

    submitted: int
    ended: int


def read_activity(commands: SlurmCommands) -> Activity:
    """The counters now.

    Raises:
        SlurmError: slurmctld does not answer, or sdiag says something else.
    """
    counters = {name: int(value) for name, value in _COUNTER.findall(commands.run("sdiag"))}
    if len(counters) != 4:
        raise SlurmError(
            f"sdiag: counters {', '.join(counters) or 'none'}; expected all four of jobs"
        )
    return Activity(counters.pop("submitted"), sum(counters.values()))
