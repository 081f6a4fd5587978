"""A job that is not submitted yet, as it would be in a snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hopsd.model.ids import GpuType, JobId, UserName, WorkloadName
from hopsd.model.job import Job, ThroughputTable
from hopsd.model.plan import Snapshot

ID = JobId("when")

SENSITIVITY = 1.5
"""The slowdown by spreading that is assumed of a training which nobody knows."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What its comment and its time limit say."""

    user: UserName
    reqs: tuple[int, ...]
    samples: float | None = None
    time_limit_seconds: float | None = None
    workload: WorkloadName | None = None
    preemptible: bool = True


def with_job(snapshot: Snapshot, asked: Asked, workloads: Mapping[JobId, WorkloadName]) -> Snapshot:
    """The snapshot with the job in its queue.

    It is as fast as jobs of the same user and workload that are there; where there are none, every
    GPU type is taken for as fast as any other, and ``samples`` say nothing about its run time.
    """
    alike = next(
        (
            job.throughput
            for job in snapshot.jobs
            if asked.workload is not None
            and job.user == asked.user
            and workloads.get(job.id) == asked.workload
        ),
        None,
    )
    job = Job(
        ID,
        asked.user,
        snapshot.now,
        0.0,
        asked.reqs,
        alike or _assumed(snapshot),
        samples=asked.samples if alike is not None else None,
        time_limit_seconds=asked.time_limit_seconds,
        preemptible=asked.preemptible,
    )
    return Snapshot(
        snapshot.now, snapshot.round, snapshot.nodes, (*snapshot.jobs, job), snapshot.limits
    )


def _assumed(snapshot: Snapshot) -> dict[GpuType, ThroughputTable]:
    table = ThroughputTable({1: 1.0}, {2: 1.0 / SENSITIVITY}, source="assumed")
    return {node.gpu_type: table for node in snapshot.nodes}
