"""Jobs and a cluster with two GPU types, A and B."""

from __future__ import annotations

from hopsd.model.ids import GpuType, JobId, NodeName, UserName
from hopsd.model.job import Job, Node, ThroughputTable
from hopsd.model.plan import RoundInfo, Snapshot

A, B = GpuType("a"), GpuType("b")


def job(name: str, *reqs: int, **changes: object) -> Job:
    fields = {
        "id": JobId(name),
        "user": UserName("u"),
        "submit": 0.0,
        "wait_seconds": 0.0,
        "reqs": reqs,
        "throughput": {A: ThroughputTable({1: 1.0}, {2: 0.5})},
        "samples": 1000.0,
    }
    return Job(**(fields | changes))  # type: ignore[arg-type]


def snapshot(*jobs: Job, idle: tuple[int, ...] = (8, 8), first: bool = True) -> Snapshot:
    nodes = tuple(Node(NodeName(f"n{i}"), A, 8, free) for i, free in enumerate(idle))
    return Snapshot(1000.0, RoundInfo(first, 360.0), nodes, jobs)
