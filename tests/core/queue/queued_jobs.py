"""Jobs in a queue on two GPU types, and their urgency."""

from __future__ import annotations

from dataclasses import replace

from hopsd.core.queue.priority import priorities
from hopsd.model.ids import GpuType, JobId, NodeName, UserName
from hopsd.model.job import Job, Node, ThroughputTable
from hopsd.model.plan import PlanSettings, PriorityName, RoundInfo, Snapshot

V100, T4 = GpuType("v100"), GpuType("t4")
NODES = (
    Node(NodeName("a"), V100, 4, 4),
    Node(NodeName("b"), V100, 8, 0),
    Node(NodeName("c"), T4, 4, 4),
)
"""12 GPUs of one type, 4 of the other; that some are busy changes no age."""


def job(job_id: str = "1", **given_values: object) -> Job:
    return replace(
        Job(
            id=JobId(job_id),
            user=UserName("u"),
            submit=0.0,
            wait_seconds=600.0,
            reqs=(1, 2, 3),
            throughput={
                V100: ThroughputTable({1: 100.0, 4: 80.0}),
                T4: ThroughputTable({1: 25.0}, {2: 20.0}),
            },
        ),
        **given_values,
    )


def snapshot(*jobs: Job, first: bool = True) -> Snapshot:
    return Snapshot(1000.0, RoundInfo(first, 1800.0), NODES, jobs)


def urgency(name: PriorityName, *jobs: Job, now: float = 1000.0) -> list[float]:
    return list(priorities(jobs, NODES, PlanSettings(priority=name), now).values())
