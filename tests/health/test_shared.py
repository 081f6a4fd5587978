"""A node whose jobs slow each other down is listed as shared, not as slow."""

from __future__ import annotations

import numpy as np
import pytest

from hopsd.health.judge import judge
from hopsd.health.records import HealthNode, HealthRecords, SpeedRecord
from hopsd.model.ids import GpuType, JobId, NodeName, WorkloadName

NODES = tuple(HealthNode(NodeName(f"n{i}"), GpuType("a"), 4) for i in range(6))
HOUR = 3600.0
COMES, NOW = 4.0 * HOUR, 6.0 * HOUR


def run(
    node: int, job: str, begin: float, end: float, loss: float = 0.0, since: float = 0.0
) -> list[SpeedRecord]:
    """Simulate a job on half of the node, slower by ``loss`` from ``since`` on.

    It reports once a minute.
    """
    r = np.random.default_rng((node, int(begin)))
    noise = r.normal(0.0, 0.004)
    return [
        SpeedRecord(
            at,
            WorkloadName("w"),
            JobId(job),
            {NODES[node].name: 2},
            float(np.exp(noise + r.normal(0.0, 0.01))) / (1.0 - loss * (at > since)),
        )
        for at in np.arange(begin + 60.0, end + 1.0, 60.0).tolist()
    ]


def site(*runs: list[SpeedRecord], now: float = NOW) -> HealthRecords:
    usual = [run(node, f"u{node}", 0.0, NOW) for node in range(1, len(NODES))]
    return HealthRecords(
        now, NODES, tuple(record for run_records in (*usual, *runs) for record in run_records)
    )


@pytest.mark.slow
def test_a_node_that_is_slower_since_a_neighbour_came_is_shared_and_not_slow() -> None:
    health = judge(site(run(0, "a", 0.0, NOW, 0.08, COMES), run(0, "b", COMES, NOW, 0.08), now=NOW))
    assert health.slow == ()
    (shared_node,) = health.shared_nodes
    assert shared_node.node == "n0"
    assert abs(shared_node.factor - 0.92) < 0.015
    assert abs(shared_node.since - COMES) < 600.0


@pytest.mark.slow
def test_a_node_is_not_shared_once_the_neighbour_is_gone() -> None:
    leaves = 5.0 * HOUR
    alone = run(0, "a", 0.0, leaves, 0.08, COMES) + run(0, "c", leaves + 600.0, NOW)
    assert judge(site(alone, run(0, "b", COMES, leaves, 0.08))).shared_nodes == ()


@pytest.mark.slow
def test_neighbours_that_cost_nothing_are_not_listed() -> None:
    assert judge(site(run(0, "a", 0.0, NOW), run(0, "b", COMES, NOW))).shared_nodes == ()


@pytest.mark.slow
def test_a_slow_node_is_not_listed_as_shared() -> None:
    """The job was as slow before the neighbour came."""
    health = judge(site(run(0, "a", 0.0, NOW, 0.1), run(0, "b", COMES, NOW, 0.1)))
    assert health.shared_nodes == ()
