"""Writes the comments of simulated jobs."""

from __future__ import annotations

from hopsd.model import bounds
from hopsd.model.ids import WorkloadName
from hopsd.model.scenario import WorkloadJob


def comment_of(job: WorkloadJob, workload: WorkloadName, *, with_samples: bool = True) -> str:
    """Write the comment with all that a scheduler may know, samples only if ``with_samples``."""
    parts = ["reqs=" + ",".join(map(str, job.reqs)), f"workload={workload}"]
    if with_samples:
        samples = min(max(job.samples, bounds.SAMPLES.minimum), bounds.SAMPLES.maximum)
        parts.insert(1, f"samples={samples!r}")
    if job.batch_size is not None:
        parts.append(f"batch={job.batch_size}")
    if not job.preemptible:
        parts.append("preempt=no")
    if job.interactive:
        parts.append("interactive")
    if job.cpu:
        parts.append("cpu=yes")
    if job.app is not None:
        parts.append(f"app={job.app}" + (f":{job.phase}" if job.phase else ""))
    return "hops:" + ";".join(parts)
