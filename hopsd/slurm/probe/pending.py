"""Reads the comments of waiting jobs, without a whole reading."""

from __future__ import annotations

from hopsd.model.ids import JobId
from hopsd.slurm.command import Runner


def pending_comments(commands: Runner) -> dict[JobId, str]:
    """The comments of waiting jobs, by id as squeue(1) shows it.

    Raises:
        SlurmError: slurmctld does not answer.
    """
    output = commands.run("squeue", "--states=PENDING", "--noheader", "--format=%i|%k")
    rows = (line.partition("|") for line in output.splitlines())
    return {JobId(job.strip()): comment for job, _, comment in rows}
