"""Adds a job that is not submitted yet to a snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from hopsd.model.ids import GpuType, JobId, UserName, WorkloadName
from hopsd.model.job import Job, ThroughputTable
from hopsd.model.plan import Snapshot
from hopsd.model.rules import ANYWHERE, Rules

ID = JobId("when")

SENSITIVITY = 1.5
"""Slowdown assumed for an unknown training when it is spread over servers."""


@dataclass(frozen=True, slots=True)
class JobRequest:
    """A hypothetical job, as its comment and time limit declare it. ``rules``: those of the comment
    alone.
    """

    user: UserName
    reqs: tuple[int, ...]
    samples: float | None = None
    time_limit_seconds: float | None = None
    workload: WorkloadName | None = None
    preemptible: bool = True
    rules: Rules = ANYWHERE


def with_job(
    snapshot: Snapshot, request: JobRequest, workloads: Mapping[JobId, WorkloadName]
) -> Snapshot:
    """The snapshot with the job in its queue.

    It is as fast as the present jobs of the same user and workload. If there are none, all GPU
    types are assumed to be equally fast, and ``samples`` give no run time. The limits of the user's
    other jobs also apply to it.
    """
    throughput = next(
        (
            job.throughput
            for job in snapshot.jobs
            if request.workload is not None
            and job.user == request.user
            and workloads.get(job.id) == request.workload
        ),
        None,
    )
    job = Job(
        ID,
        request.user,
        snapshot.now,
        0.0,
        request.reqs,
        throughput or _assumed_tables(snapshot),
        samples=request.samples if throughput is not None else None,
        time_limit_seconds=request.time_limit_seconds,
        preemptible=request.preemptible,
        rules=request.rules,
    )
    user_jobs = {candidate.id for candidate in snapshot.jobs if candidate.user == request.user}
    limits = tuple(
        limit if user_jobs.isdisjoint(limit.jobs) else replace(limit, jobs=limit.jobs | {ID})
        for limit in snapshot.limits
    )
    return replace(snapshot, jobs=(*snapshot.jobs, job), limits=limits)


def _assumed_tables(snapshot: Snapshot) -> dict[GpuType, ThroughputTable]:
    table = ThroughputTable({1: 1.0}, {2: 1.0 / SENSITIVITY}, source="assumed")
    return {node.gpu_type: table for node in snapshot.nodes}
