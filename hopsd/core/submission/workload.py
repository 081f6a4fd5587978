"""Workload identity: which runs are the same training and share what was learnt about it."""

from __future__ import annotations

from functools import lru_cache

from hopsd.core.submission.comment import parse
from hopsd.errors import InputError
from hopsd.model.ids import WorkloadName
from hopsd.model.reading import JobReading


def workload_of(job: JobReading, program: str = "") -> WorkloadName:
    """Return the workload's name: from the comment, else user, job name and script name and hash.

    ``program``: hash of the training script, which the batch script may merely call; known once a
    job has reported. A changed script is thus a new workload, and a resubmitted one is recognised.
    The script's imports and inputs are not hashed: a user who changes them can name the workload.
    """
    explicit = _explicit_name(job.comment)
    if explicit:
        return WorkloadName(explicit)
    name = _script(job.command)
    content = f"@{job.script}" if job.script else ""
    return WorkloadName(f"{job.user}/{job.name}/{name}{content}{f'+{program}' if program else ''}")


def _script(command: str) -> str:
    """Return the script's file name. It is not cached, as command lines have any length."""
    return command.partition(" ")[0].rstrip("/").rpartition("/")[2]


def _explicit_name(comment: str) -> str | None:
    try:
        return _accepted_name(comment)
    except InputError:
        return None


@lru_cache(maxsize=16384)
def _accepted_name(comment: str) -> str | None:
    """Return the workload in a comment. Refused comments, such as long ones, are not cached."""
    return parse(comment).workload
