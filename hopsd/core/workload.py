"""Which runs are the same training: what was learnt of one holds for the other."""

from __future__ import annotations

from pathlib import PurePosixPath

from hopsd.core.comment import Comment
from hopsd.model.ids import WorkloadName
from hopsd.model.reading import JobReading


def workload_of(job: JobReading, comment: Comment | None) -> WorkloadName:
    """The comment's ``workload``, else user, job name and script name together."""
    if comment is not None and comment.workload:
        return WorkloadName(comment.workload)
    return WorkloadName(f"{job.user}/{job.name}/{PurePosixPath(job.command).name}")
