"""Clusters and queues large enough that the exact way does not take them."""

from __future__ import annotations

import numpy as np

from hopsd.model.cluster import Node
from hopsd.model.ids import GpuType, JobId, NodeName, UserName
from hopsd.model.job import Job, ThroughputTable
from hopsd.model.plan import RoundInfo, Snapshot


def snapshot(
    seed: int,
    servers: int = 12,
    jobs: int = 30,
    *,
    first: bool = True,
    decades: float = 0.0,
    factors: bool = True,
) -> Snapshot:
    """Two GPU types, some servers partly idle; priorities over about ``decades`` decades."""
    rng = np.random.default_rng(seed)
    nodes = []
    for i in range(servers):
        gpus = int(rng.choice([4, 8, 8]))
        idle = gpus if rng.random() < 0.6 else int(rng.integers(0, gpus + 1))
        nodes.append(Node(NodeName(f"n{i}"), GpuType("ab"[i * 2 // servers]), gpus, idle))
    return Snapshot(
        1e5,
        RoundInfo(first=first, seconds=1800.0),
        tuple(nodes),
        tuple(_job(i, nodes, rng, decades, factors=factors) for i in range(jobs)),
    )


def _job(
    i: int, nodes: list[Node], rng: np.random.Generator, decades: float, *, factors: bool
) -> Job:
    sizes = sorted(set(rng.integers(1, 13, rng.integers(1, 5)).tolist()))
    one = float(rng.uniform(10, 100))
    tables = {
        GpuType(t): ThroughputTable(
            {1: one * speed, 8: 0.9 * one * speed}, {2: one * speed / rng.uniform(1.05, 2.0)}
        )
        for t, speed in (("a", 1.0), ("b", float(rng.uniform(0.3, 0.9))))
    }
    chance = {n.name: float(rng.uniform(0.9, 1.1)) for n in nodes} if factors else {}
    return Job(
        id=JobId(str(i)),
        user=UserName("u"),
        submit=float(i),
        wait_seconds=0.0,
        reqs=tuple(sizes),
        throughput=tables,
        priority=float(10 ** rng.uniform(0, decades) if decades else rng.uniform(0.5, 2.0)),
        server_factor=chance,
    )
