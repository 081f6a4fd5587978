"""Which runs are the same training: what was learnt of one holds for the other."""

from __future__ import annotations

from pathlib import PurePosixPath

from hopsd.core.comment import Comment
from hopsd.model.ids import WorkloadName
from hopsd.model.reading import JobReading


def workload_of(job: JobReading, comment: Comment | None) -> WorkloadName:
    """The comment's ``workload``, else user, job name and script: its name and what it says.

    So a changed script is another training, and one submitted again is known. What the script
    calls is not looked at: who changes that names the workload.
    """
    if comment is not None and comment.workload:
        return WorkloadName(comment.workload)
    name = PurePosixPath(job.command.partition(" ")[0]).name
    content = f"@{job.script}" if job.script else ""
    return WorkloadName(f"{job.user}/{job.name}/{name}{content}")
