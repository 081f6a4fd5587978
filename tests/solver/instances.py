"""Clusters and queues too large for the exact method."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hopsd.core.placement.available import kept_to_counts
from hopsd.model.ids import GpuType, JobId, NodeName, UserName
from hopsd.model.job import Job, Node, ThroughputTable
from hopsd.model.plan import RoundInfo, Snapshot
from hopsd.model.rules import Limit, Rules, ShapeRule


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
    single_gpu = float(rng.uniform(10, 100))
    tables = {
        GpuType(t): ThroughputTable(
            {1: single_gpu * speed, 8: 0.9 * single_gpu * speed},
            {2: single_gpu * speed / rng.uniform(1.05, 2.0)},
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


def with_rules(instance: Snapshot, seed: int) -> Snapshot:
    """The same instance with rules: shapes, cores, memory, nodes, exclusive servers, and limits."""
    rng = np.random.default_rng((seed, 1))
    nodes = tuple(
        replace(
            node,
            cores=8 * node.gpus,
            idle_cores=8 * node.idle,
            memory_mb=64_000.0 * node.gpus,
            idle_memory_mb=float(rng.choice([0.7, 1.0])) * 64_000 * node.idle,
        )
        for node in instance.nodes
    )
    names = [node.name for node in nodes]
    jobs = []
    for job in instance.jobs:
        shape = ShapeRule(rng.choice(["any", "even", "node"]))
        per_node = int(rng.choice([1, 2, 4])) if shape is ShapeRule.EVEN else None
        name_subset = frozenset(name for name in names if rng.random() < 0.7)
        rules = Rules(
            nodes=name_subset if rng.random() < 0.2 else None,
            shape=shape,
            per_node=per_node if rng.random() < 0.5 else None,
            exclusive=bool(rng.random() < 0.1),
            cores_per_gpu=float(rng.choice([0, 4, 7.5, 16])),
            memory_mb_per_gpu=float(rng.choice([0, 50_000, 100_000])),
            memory_mb_per_node=float(rng.choice([0, 30_000.5])),
        )
        jobs.append(kept_to_counts(replace(job, rules=rules)))
    ids = [job.id for job in jobs]
    limits = (
        Limit("QOS small, u", frozenset(ids[::3]), gpus=8, count=None),
        Limit("QOS few, u", frozenset(ids[::2]), gpus=None, count=3),
        Limit("account", frozenset(ids[1::2]), gpus=12, count=6),
    )
    return replace(instance, nodes=nodes, jobs=tuple(jobs), limits=limits)
