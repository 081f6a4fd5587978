"""Section 2: iteration time (eq. 1 to 5), tables, and a configuration's throughput."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopsd.core.speed.throughput import (
    BasicTimes,
    DataTime,
    IterationModel,
    Pattern,
    PeerWait,
    communication_seconds,
    configuration_throughput,
    interpolate,
    iteration_seconds,
    per_gpu,
    single_gpu,
    theory_per_gpu,
    theory_table,
)
from hopsd.model.allocation import Allocation
from hopsd.model.ids import GpuType, JobId, NodeName, UserName
from hopsd.model.job import Job, ThroughputTable

TIMES = BasicTimes(
    batch_size=32,
    params=100.0,
    pattern=Pattern.OVERLAPPED,
    t_f=1.0,
    t_b=2.0,
    t_u=0.5,
    t_d=DataTime(1.0, 0.25, 0.0),
    b_link=50.0,
    b_net=20.0,
)
V100, T4 = GpuType("v100"), GpuType("t4")
TYPE_OF = {NodeName("a"): V100, NodeName("b"): V100, NodeName("c"): T4}
JOB = Job(
    id=JobId("1"),
    user=UserName("u"),
    submit=0.0,
    wait_seconds=0.0,
    reqs=(1,),
    throughput={V100: ThroughputTable({1: 100.0, 4: 70.0}, {2: 50.0, 4: 30.0})},
    server_factor={NodeName("b"): 0.5},
)


def test_one_gpu_does_not_communicate() -> None:
    assert communication_seconds(TIMES, 1, 1) == 0.0


def test_gpus_of_one_server_communicate_in_a_ring_over_the_link() -> None:
    assert communication_seconds(TIMES, 4, 1) == 100.0 / 50.0 * 3 / 4


def test_several_servers_communicate_over_the_network_whatever_their_number() -> None:
    assert communication_seconds(TIMES, 4, 2) == 100.0 / 20.0
    assert communication_seconds(TIMES, 16, 4) == 100.0 / 20.0


def test_pattern_1_overlaps_data_loading_with_backward_and_update() -> None:
    # T_c = 1.5 < T_b + 0.2 T_c = 2.3: data 0.25 is hidden behind 2.3 + 0.5.
    assert iteration_seconds(TIMES, 4, 1) == pytest.approx(2.3 + 0.5 + 1.0)
    slow = replace(TIMES, t_d=DataTime(1.0, 5.0, 0.0))
    assert iteration_seconds(slow, 4, 1) == pytest.approx(5.0 + 1.0)


def test_pattern_2_adds_data_loading_and_update() -> None:
    serial = replace(TIMES, pattern=Pattern.SERIAL)
    assert iteration_seconds(serial, 4, 1) == pytest.approx(0.25 + 2.3 + 0.5 + 1.0)


def test_pattern_2_drops_the_update_under_paper_exact() -> None:
    serial = replace(TIMES, pattern=Pattern.SERIAL)
    exact = IterationModel(paper_exact=True)
    assert iteration_seconds(serial, 4, 1, exact) == pytest.approx(0.25 + 2.3 + 1.0)
    assert iteration_seconds(TIMES, 4, 1, exact) == iteration_seconds(TIMES, 4, 1)


def test_communication_longer_than_backward_takes_its_whole_time() -> None:
    assert iteration_seconds(TIMES, 4, 2) == pytest.approx(5.0 + 0.5 + 1.0)


def test_the_exposed_share_of_communication_is_a_setting() -> None:
    assert iteration_seconds(TIMES, 4, 1, IterationModel(exposed_share=0.4)) == pytest.approx(
        2.0 + 0.6 + 0.5 + 1.0
    )


def test_the_two_modes_of_data_loading_are_weighted_with_their_own_waits() -> None:
    two_modes = replace(
        TIMES,
        pattern=Pattern.SERIAL,
        t_d=DataTime(0.75, 0.25, 0.1, 4.0, 0.5),
        t_w=PeerWait(cache=0.0, load=2.0),
    )
    cache_seconds, load_seconds = 0.25 + 2.0 + 0.5 + 1.0, 4.0 + 2.0 + 0.5 + 1.0 + 2.0
    expected = 0.75 * cache_seconds + 0.25 * load_seconds
    assert iteration_seconds(two_modes, 1, 1) == pytest.approx(expected)
    assert theory_per_gpu(two_modes, 1, 1) == pytest.approx(32 / expected)


def test_the_theory_as_a_table_equals_the_theory() -> None:
    table = theory_table(TIMES, 8)
    assert [per_gpu(table, n, 1) for n in range(1, 9)] == [
        theory_per_gpu(TIMES, n, 1) for n in range(1, 9)
    ]
    assert per_gpu(table, 12, 3) == theory_per_gpu(TIMES, 12, 3)


def test_counts_are_interpolated_and_clamped_outside() -> None:
    table = {2: 100.0, 4: 80.0}
    assert [interpolate(table, n) for n in (1, 2, 3, 4, 9)] == [100.0, 100.0, 90.0, 80.0, 80.0]


@given(st.dictionaries(st.integers(1, 64), st.floats(0.1, 1e6), min_size=1), st.integers(1, 80))
def test_a_value_lies_between_its_neighbours(table: dict[int, float], count: int) -> None:
    counts_up_to = [n for n in table if n <= count] or [min(table)]
    counts_from = [n for n in table if n >= count] or [max(table)]
    low, high = sorted((table[max(counts_up_to)], table[min(counts_from)]))
    assert low * (1 - 1e-12) <= interpolate(table, count) <= high * (1 + 1e-12)


def test_one_server_is_looked_up_by_gpus_and_several_by_servers() -> None:
    table = JOB.throughput[V100]
    assert per_gpu(table, 2, 1) == 90.0
    assert per_gpu(table, 2, 2) == per_gpu(table, 16, 2) == 50.0
    assert per_gpu(table, 16, 3) == 40.0


def test_a_configuration_runs_at_the_pace_of_its_slowest_server() -> None:
    assert configuration_throughput(JOB, Allocation.of({"a": 2}), TYPE_OF) == 90.0 * 2
    assert configuration_throughput(JOB, Allocation.of({"b": 2}), TYPE_OF) == 90.0 * 0.5 * 2
    spread = Allocation.of({"a": 3, "b": 1})
    assert configuration_throughput(JOB, spread, TYPE_OF) == 50.0 * 0.5 * 4


def test_a_type_without_a_table_gives_no_throughput() -> None:
    assert configuration_throughput(JOB, Allocation.of({"c": 1}), TYPE_OF) == 0.0
    assert configuration_throughput(JOB, Allocation(), TYPE_OF) == 0.0
    assert (single_gpu(JOB, V100), single_gpu(JOB, T4)) == (100.0, 0.0)
