"""Uneven shapes that leave GPUs on their first server: what runs together, and how Slurm fills."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopsd.core.placement.shapes import Neighbours, ShapesOfSize
from hopsd.model.cluster import Node
from hopsd.model.ids import GpuType, JobId, NodeName, UserName
from hopsd.model.job import Job, ThroughputTable
from hopsd.model.plan import Plan, PlanSettings, RoundInfo, Snapshot
from hopsd.policies.registry import get
from hopsd.slurm.shape import filled

A = GpuType("a")


def cluster(*gpus: int) -> tuple[Node, ...]:
    return tuple(Node(NodeName(f"n{i}"), A, count, count) for i, count in enumerate(gpus))


def planned(nodes: tuple[Node, ...], *sizes: int) -> Plan:
    table = ThroughputTable(dict.fromkeys(range(1, 9), 1.0), dict.fromkeys(range(2, 65), 1.0))
    jobs = tuple(
        Job(JobId(str(i)), UserName("u"), 0.0, 0.0, (size,), {A: table}, samples=1e4)
        for i, size in enumerate(sizes, 1)
    )
    snapshot = Snapshot(
        now=100.0, round=RoundInfo(first=True, seconds=360.0), nodes=nodes, jobs=jobs
    )
    return get("hops+")(snapshot, PlanSettings(policy="hops+", time_limit_seconds=20.0))


@pytest.mark.parametrize(("servers", "sizes"), [(3, (12, 12)), (4, (10, 10, 12)), (4, (9, 11, 12))])
def test_jobs_that_together_fill_the_servers_run_together(
    servers: int, sizes: tuple[int, ...]
) -> None:
    assert len(planned(cluster(*[8] * servers), *sizes).placements) == len(sizes)


def test_a_first_server_that_nobody_else_uses_is_used_up() -> None:
    (placement,) = planned(cluster(8, 8), 12).placements.values()
    assert placement.as_dict() == {"n0": 8, "n1": 4}


def rows_of(shapes: ShapesOfSize) -> list[tuple[tuple[int, int], ...]]:
    return [
        tuple(zip(servers, gpus, strict=True))
        for servers, gpus in zip(shapes.servers.tolist(), shapes.gpus.tolist(), strict=True)
    ]


@given(st.lists(st.integers(0, 8), min_size=1, max_size=6), st.integers(2, 40))
def test_shapes_hold_the_size_on_as_few_servers_as_filled_ones(idle: list[int], size: int) -> None:
    neighbours = Neighbours(np.arange(len(idle)), np.array(idle, dtype=np.int64))
    plain, slid = neighbours.filled(size), neighbours.slid(size)
    rows = rows_of(slid)
    assert len(rows) == len(set(rows))
    assert slid.servers.shape[1] == plain.servers.shape[1]
    assert set(rows_of(plain)) <= set(rows)
    assert np.all(np.diff(slid.servers[:, 0]) >= 0)
    for row in rows:
        assert sum(gpus for _, gpus in row) == size
        assert all(1 <= gpus <= idle[server] for server, gpus in row)
        assert all(gpus == idle[server] for server, gpus in row[1:-1])
        servers = [server for server, _ in row]
        assert servers == list(range(servers[0], servers[0] + len(servers)))


@pytest.mark.parametrize("seed", range(25))
def test_slurm_can_start_what_is_planned(seed: int) -> None:
    """Some job can always start next: Slurm's own filling gives it exactly its placement."""
    draw = random.Random(seed)  # a test, not a secret
    nodes = cluster(*(draw.choice([4, 8]) for _ in range(draw.randint(3, 6))))
    sizes = [draw.choice([1, 2, 3, 5, 6, 7, 9, 10, 11, 12, 13, 20]) for _ in range(8)]
    free = {node.name: node.gpus for node in nodes}
    waiting = list(planned(nodes, *sizes).placements.values())
    while waiting:
        ready = [
            placement
            for placement in waiting
            if placement.even or filled(free, list(placement.nodes), placement.gpus) == placement
        ]
        assert ready, f"none of {waiting} is what Slurm would give of {free}"
        for node, gpus in ready[0]:
            free[node] -= gpus
        waiting.remove(ready[0])
