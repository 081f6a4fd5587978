"""Speeds that a job reports are limited by what was ever measured."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopsd.core.speed.estimator import Estimator, EstimatorSettings
from hopsd.core.speed.plausible import ONE_SERVER, OVER_CPU, SPREAD, TYPES, plausible_tables
from hopsd.core.speed.throughput import per_gpu
from hopsd.model.ids import GpuType, NodeName, WorkloadName
from hopsd.model.job import Node, ThroughputTable
from hopsd.model.knowledge import Knowledge, ThroughputRecord

A, V, CPU = GpuType("a100"), GpuType("v100"), GpuType("cpu")
W = WorkloadName("w")
NODES = (
    Node(NodeName("a0"), A, 8, 8),
    Node(NodeName("a1"), A, 8, 8),
    Node(NodeName("v0"), V, 8, 8),
)


def tables_from(*records: tuple[str, int, int, float]) -> dict[GpuType, ThroughputTable]:
    """Tables from three reports each of node, GPUs, servers and samples/s per GPU."""
    types = {node.name: node.gpu_type for node in NODES}
    records_of_rates = tuple(
        ThroughputRecord(W, types[NodeName(n)], NodeName(n), gpus, nodes, rate, 100.0 + i)
        for n, gpus, nodes, rate in records
        for i in range(3)
    )
    return dict(
        Estimator(NODES, Knowledge(records=records_of_rates), EstimatorSettings(), 200.0)
        .estimate(W)
        .tables
    )


@pytest.mark.parametrize("factor", [1e-9, 1e-3, 1e3, 1e9])
def test_a_faked_speed_gains_no_more_than_was_ever_measured(factor: float) -> None:
    high, low = (min(max(rate, 1e-6), 1e9) for rate in (factor, 1.0 / factor))
    tables = tables_from(("a0", 1, 1, 1.0), ("a0", 8, 1, high), ("v0", 1, 1, low))
    for table in tables.values():
        alone = table.aggregated[1]
        assert all(
            ONE_SERVER.minimum * 0.99 <= rate / alone <= ONE_SERVER.maximum * 1.01
            or math.isclose(rate, 1e-6)
            for rate in table.aggregated.values()
        )
        assert all(
            SPREAD.minimum * 0.99 <= rate / alone <= SPREAD.maximum * 1.01
            or math.isclose(rate, 1e-6)
            for rate in table.distributed.values()
        )
    alone = [table.aggregated[1] for table in tables.values()]
    assert max(alone) / min(alone) <= TYPES * 1.001
    assert "limited to plausible values" in tables[A].source_of(8, 1)


@pytest.mark.parametrize(("gpus", "nodes"), [(8, 1), (8, 2)])
def test_several_gpus_count_for_little_more_than_as_many_single_ones(gpus: int, nodes: int) -> None:
    """Believed up to 3.1 times the speed for each GPU, a liar's jobs ended 1.34 times sooner."""
    tables = tables_from(("a0", 1, 1, 10.0), ("a0", gpus, nodes, 1e6))
    assert per_gpu(tables[A], gpus, nodes) <= 1.1 * tables[A].aggregated[1] * 1.001


def test_real_measurements_are_left_unchanged() -> None:
    """Language model with batch 5 (Gavel): steps/s per GPU on V100 and P100."""
    tables = {
        V: ThroughputTable({1: 109.2, 2: 92.9, 4: 31.7, 8: 87.3}, {2: 20.2}),
        A: ThroughputTable({1: 28.6, 8: 28.6 * 0.1839}, {2: 6.1}),
    }
    assert plausible_tables(tables) == tables


rates = st.floats(1e-6, 1e9)
tables = st.builds(
    ThroughputTable,
    aggregated=st.dictionaries(st.integers(2, 8), rates, max_size=3).flatmap(
        lambda more: rates.map(lambda rate: {1: rate, **more})
    ),
    distributed=st.dictionaries(st.integers(2, 8), rates, max_size=3),
)


@given(st.dictionaries(st.sampled_from([A, V, CPU, GpuType("t4")]), tables, max_size=4))
def test_no_two_speeds_of_a_workload_are_further_apart_than_plausible(
    tables: dict[GpuType, ThroughputTable],
) -> None:
    bounded_tables = plausible_tables(tables)
    rates = [
        r
        for t in bounded_tables.values()
        for r in (*t.aggregated.values(), *t.distributed.values())
    ]
    widest = OVER_CPU * ONE_SERVER.maximum / SPREAD.minimum
    assert not rates or max(rates) / max(min(rates), 1e-6) <= widest * 1.001
    rebounded_tables = plausible_tables(bounded_tables)
    for gpu_type, table in bounded_tables.items():
        assert rebounded_tables[gpu_type].aggregated == pytest.approx(
            dict(table.aggregated), rel=1e-6
        )
