"""How the cluster's GPUs are used: at any time, each is counted exactly once."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopsd.model.allocation import Allocation
from hopsd.model.devices import CPU
from hopsd.model.ids import GpuType, JobId, NodeName, UserName
from hopsd.model.journal import GpuUse
from hopsd.model.reading import JobReading, NodeReading, Reading, SlurmState
from hopsd.service.gpu_use import Meter

A = GpuType("a")
N0, N1 = NodeName("n0"), NodeName("n1")


def reading(now: float, *nodes: NodeReading, **gpus_by_node: int) -> Reading:
    allocation = Allocation.of({NodeName(node): gpus for node, gpus in gpus_by_node.items()})
    job = JobReading(JobId("1"), UserName("u"), 0, "", "", "", SlurmState.RUNNING, 0.0)
    return Reading(now, nodes, (replace(job, allocation=allocation),))


def test_the_state_is_assumed_unchanged_until_the_next_reading() -> None:
    meter = Meter()
    nodes = (NodeReading(N0, A, 8, 8, foreign_gpus=1), NodeReading(N1, A, 4, 4, usable=False))
    assert meter.look(reading(100.0, *nodes, n0=2, n1=1), demand=True, longest=60.0) == ()
    assert meter.look(reading(110.0, *nodes), demand=False, longest=60.0) == (
        GpuUse(0.0, A, hops=30.0, plain=10.0, fragmented=50.0, down=30.0),
    )
    assert meter.look(reading(120.0, *nodes), demand=True, longest=60.0) == (
        GpuUse(0.0, A, plain=10.0, idle=70.0, down=40.0),
    )


def test_unusable_racks_are_part_of_the_fragments() -> None:
    meter = Meter()
    nodes = (NodeReading(N0, A, 8, 8), NodeReading(N1, A, 8, 8))
    b = GpuType("b")
    meter.look(reading(0.0, *nodes), demand=True, rack_fragments={A: 8, b: 8}, longest=60.0)
    # A job has started since the plan that left 8 GPUs.
    busy = reading(10.0, *nodes, n0=8, n1=4)
    assert meter.look(busy, demand=True, rack_fragments={A: 8}, longest=60.0) == (
        GpuUse(0.0, A, fragmented=160.0, rack_fragmented=80.0),
    )
    last_reading = reading(20.0, *nodes)
    assert meter.look(last_reading, demand=False, rack_fragments={A: 8}, longest=60.0) == (
        GpuUse(0.0, A, hops=120.0, fragmented=40.0, rack_fragmented=40.0),
    )
    # No job waits.
    assert meter.look(reading(30.0, *nodes), demand=True, longest=60.0)[0].rack_fragmented == 0.0


def test_an_interval_over_the_full_hour_is_divided() -> None:
    meter, node = Meter(), NodeReading(N0, A, 1, 1)
    meter.look(reading(3590.0, node), demand=False, longest=60.0)
    assert meter.look(reading(3605.0, node), demand=False, longest=60.0) == (
        GpuUse(0.0, A, idle=10.0),
        GpuUse(3600.0, A, idle=5.0),
    )


def test_a_cpu_idles_beside_a_job_that_needs_gpus() -> None:
    meter = Meter()
    nodes = (NodeReading(N0, A, 1, 1), NodeReading(N1, CPU, 1, 1))
    meter.look(reading(0.0, *nodes), demand=True, longest=60.0)
    assert meter.look(reading(10.0, *nodes), demand=True, cpu_demand=True, longest=60.0) == (
        GpuUse(0.0, A, fragmented=10.0),
        GpuUse(0.0, CPU, idle=10.0),
    )
    assert meter.look(reading(20.0, *nodes), demand=False, longest=60.0)[1].fragmented == 10.0


@pytest.mark.parametrize("now", [50.0, 100.0, 1000.0])
def test_unobserved_intervals_are_not_counted(now: float) -> None:
    """The clock was set back, no time passed, or too much time passed."""
    meter, node = Meter(), NodeReading(N0, A, 1, 1)
    meter.look(reading(100.0, node), demand=False, longest=60.0)
    assert meter.look(reading(now, node), demand=False, longest=60.0) == ()


@given(
    gpus=st.integers(1, 16),
    foreign=st.integers(0, 20),
    hops_gpus=st.integers(0, 20),
    usable=st.booleans(),
    demand=st.booleans(),
    seconds=st.floats(0.1, 20000.0),
)
def test_every_gpu_is_counted_exactly_once(
    gpus: int, foreign: int, hops_gpus: int, usable: bool, demand: bool, seconds: float
) -> None:
    meter = Meter()
    node = NodeReading(N0, A, gpus, 8, foreign_gpus=foreign, usable=usable)
    meter.look(reading(1000.0, node, n0=hops_gpus), demand=demand, longest=1e6)
    uses = meter.look(reading(1000.0 + seconds, node), demand=demand, longest=1e6)
    total = sum(u.hops + u.plain + u.fragmented + u.idle + u.down for u in uses)
    assert total == pytest.approx(gpus * seconds)
    assert all(min(u.hops, u.plain, u.fragmented, u.idle, u.down) >= 0.0 for u in uses)
