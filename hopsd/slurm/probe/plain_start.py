"""Asks plain Slurm when it would start a job."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime

from hopsd.slurm.command import SlurmCommands

_START = re.compile(r"^sbatch: Job \d+ to start at (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d) ", re.MULTILINE)


def plain_start(commands: SlurmCommands, options: Sequence[str]) -> float | None:
    """When Slurm would start an ordinary job with these ``options`` of sbatch, in seconds since the
    epoch; None if Slurm would refuse it or gives no time.

    ``sbatch --test-only`` (sbatch(1)) creates no job. Slurm assumes that running jobs use all of
    their time limits. It starts none of hops' waiting jobs earlier, since they are held.

    Raises:
        SlurmUnavailableError: sbatch is missing, or slurmctld does not answer.
    """
    _, reply = commands.try_submission((*options, "--comment=", "--wrap=true"))
    match = _START.search(reply)
    return None if match is None else datetime.fromisoformat(match[1]).timestamp()
