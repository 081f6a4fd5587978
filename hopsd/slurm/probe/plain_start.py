"""When plain Slurm says that it would start a job."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime

from hopsd.slurm.command import SlurmCommands

_START = re.compile(r"^sbatch: Job \d+ to start at (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d) ", re.MULTILINE)


def plain_start(commands: SlurmCommands, options: Sequence[str]) -> float | None:
    """Seconds since 1970 of the start of an ordinary job with these ``options`` of sbatch; None:
    Slurm would not take it, or does not tell.

    ``sbatch --test-only`` (sbatch(1)) creates no job. Slurm goes by the time limits of what runs.
    hops' own waiting jobs are held, so it starts none of them before.

    Raises:
        SlurmUnavailableError: there is no sbatch, or slurmctld does not answer.
    """
    _, reply = commands.try_submission((*options, "--comment=", "--wrap=true"))
    match = _START.search(reply)
    return None if match is None else datetime.fromisoformat(match[1]).timestamp()
