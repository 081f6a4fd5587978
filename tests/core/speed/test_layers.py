"""Which layer gives a shape's speed, and what it is."""

from __future__ import annotations

from itertools import pairwise
from math import sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st
from speed_values import (
    NODES,
    NOW,
    PAPER,
    RESNET,
    A,
    B,
    estimate_of,
    knowledge,
    record,
    records,
    theory,
)

from hopsd.core.speed.estimator import Estimator, EstimatorSettings
from hopsd.core.speed.throughput import Communication, IterationModel, per_gpu
from hopsd.model.devices import CPU
from hopsd.model.ids import GpuType, NodeName, WorkloadName
from hopsd.model.job import Node, ThroughputTable
from hopsd.model.knowledge import Bandwidth, Knowledge, ThroughputRecord

N1 = NodeName("n1")
SWITCH_MODEL = IterationModel(communication=Communication.SWITCHED)


def test_a_layer_answers_from_min_records_on() -> None:
    table = estimate_of(knowledge(*records(2, 50.0), fits=(theory(),))).tables[A]
    assert table.aggregated[1] == pytest.approx(100.0)
    assert table.source_of(1, 1) == "theory, 4 records"
    table = estimate_of(knowledge(*records(3, 50.0), fits=(theory(),))).tables[A]
    assert table.aggregated[1] == pytest.approx(50.0)
    assert table.source_of(1, 1) == "type, 3 records"


def test_records_weigh_half_after_a_half_life() -> None:
    old = [record(40.0, at=NOW - 86400.0) for _ in range(3)]
    aging_records = knowledge(*old, *records(3, 100.0))
    table = estimate_of(aging_records, half_life_seconds=86400.0).tables[A]
    assert table.aggregated[1] == pytest.approx((0.5 * 40.0 + 100.0) / 1.5)
    assert estimate_of(aging_records, half_life_seconds=1.0).tables[A].aggregated[
        1
    ] == pytest.approx(100.0)


def test_paper_tables_interpolate_between_two_measured_counts() -> None:
    two_counts = knowledge(*records(3, 100.0, 2), *records(3, 80.0, 6), fits=(theory(),))
    table = estimate_of(two_counts, model=PAPER).tables[A]
    assert [table.aggregated[n] for n in (2, 3, 4, 5, 6)] == pytest.approx([100, 95, 90, 85, 80])
    assert table.source_of(3, 1) == "type, 6 records of neighbours"


def test_theory_is_scaled_by_interpolated_ratios_between_measured_counts() -> None:
    plain = estimate_of(knowledge(fits=(theory(),))).tables[A].aggregated
    two_counts = knowledge(
        *records(3, plain[2], 2), *records(3, 0.8 * plain[6], 6), fits=(theory(),)
    )
    table = estimate_of(two_counts).tables[A]
    assert table.aggregated[2] == pytest.approx(plain[2])
    assert 0.8 * plain[4] < table.aggregated[4] < plain[4]
    assert table.source_of(3, 1) == "type, 6 records of neighbours"


def test_paper_tables_scale_theory_to_measured_counts() -> None:
    plain = estimate_of(knowledge(fits=(theory(),)), model=PAPER).tables[A].aggregated
    one_count = knowledge(*records(3, 0.8 * plain[2], 2), fits=(theory(),))
    table = estimate_of(one_count, model=PAPER).tables[A]
    for gpus in (1, 4, 8):
        assert table.aggregated[gpus] == pytest.approx(0.8 * plain[gpus])
        assert table.source_of(gpus, 1) == "theory, 4 records, scaled by 0.80"
    spread = estimate_of(knowledge(fits=(theory(),)), model=PAPER).tables[A].distributed
    assert table.distributed[2] == pytest.approx(0.8 * spread[2])


def test_paper_tables_take_the_scale_of_the_nearest_measured_count() -> None:
    plain = estimate_of(knowledge(fits=(theory(),)), model=PAPER).tables[A].aggregated
    two_counts = knowledge(
        *records(3, 0.9 * plain[2], 2), *records(3, 0.6 * plain[4], 4), fits=(theory(),)
    )
    table = estimate_of(two_counts, model=PAPER).tables[A]
    assert table.aggregated[1] == pytest.approx(0.9 * plain[1])
    assert table.aggregated[8] == pytest.approx(0.6 * plain[8])


@pytest.mark.parametrize("model", [IterationModel(), PAPER])
def test_theory_is_equations_1_to_5(model: IterationModel) -> None:
    table = estimate_of(knowledge(fits=(theory(t_u=0.0, t_f=0.03),)), model=model).tables[A]
    # Pattern 2: 0.02 data, 0.03 forward; backward 0.05 against T_c.
    t_c = 0.1 * 3 / 4
    assert table.aggregated[1] == pytest.approx(10 / 0.1)
    assert table.aggregated[4] == pytest.approx(10 / (0.05 + max(0.05 + 0.2 * t_c, t_c)))
    assert table.distributed[2] == pytest.approx(10 / (0.05 + 0.25))
    assert table.source_of(4, 1) == table.source_of(8, 2) == "theory, 4 records"


def test_a_single_gpu_does_not_communicate() -> None:
    for model, update in ((IterationModel(), 0.01), (PAPER, 0.0)):
        table = estimate_of(knowledge(fits=(theory(w_cache=0.05),)), model=model).tables[A]
        assert table.aggregated[1] == pytest.approx(10 / (0.09 + update))
        assert table.aggregated[8] == pytest.approx(10 / (0.04 + update + 0.1 * 7 / 8 + 0.05))


def test_inference_has_only_data_and_forward_time() -> None:
    fit = theory(inference=True, t_b=0.0, t_u=0.0)
    table = estimate_of(Knowledge(theory=(fit,))).tables[A]
    assert list(table.aggregated.values()) == pytest.approx([10 / 0.04] * 8)
    assert table.distributed[2] == pytest.approx(10 / 0.04)


@pytest.mark.parametrize("model", [IterationModel(), PAPER, SWITCH_MODEL])
def test_theory_without_bandwidth_covers_only_one_gpu(model: IterationModel) -> None:
    times_only = Knowledge(theory=(theory(),))
    table = estimate_of(times_only, assumed_sensitivity=2.0, model=model).tables[A]
    assert table.source_of(1, 1) == "theory, 4 records"
    assert table.source_of(8, 1) == table.source_of(2, 2) == "assumed"
    one_gpu = per_gpu(table, 1, 1)
    assert per_gpu(table, 2, 2) == pytest.approx(one_gpu / 2.0)
    assert 0.8 * one_gpu < per_gpu(table, 8, 1) <= one_gpu


def test_the_assumed_sensitivity_holds_for_any_overlap() -> None:
    for sensitivity in (1.02, 1.1, 1.3, 3.0):
        for exposure in (0.0, 0.2, 1.0):
            model = IterationModel(exposure)
            times_only = Knowledge(theory=(theory(),))
            table = estimate_of(times_only, assumed_sensitivity=sensitivity, model=model).tables[A]
            ratio = per_gpu(table, 1, 1) / per_gpu(table, 2, 2)
            assert ratio == pytest.approx(sensitivity)


def test_the_operators_bandwidth_takes_precedence_over_the_measured_one() -> None:
    given_by_operator = (Bandwidth(A, 1e9, 1e9),)
    table = estimate_of(knowledge(fits=(theory(),)), bandwidth=given_by_operator).tables[A]
    assert table.distributed[2] == pytest.approx(10 / (0.05 + 0.05 + 0.2 * 0.001))


def test_the_ring_counts_gpus_and_servers() -> None:
    model = IterationModel(communication=Communication.RING)
    table = estimate_of(knowledge(fits=(theory(),)), model=model).tables[A]
    # Half of each server: 8 of 16 GPUs.
    assert table.distributed[2] == pytest.approx(10 / (0.05 + 0.25 * 2 * 7 / 8 * sqrt(2 / 2)))


def test_an_unmeasured_cpu_is_slower_than_a_gpu_and_vice_versa() -> None:
    nodes = (*NODES, Node(NodeName("n3"), CPU, 2, 2))

    def alone(node: str, per_gpu: float) -> dict[GpuType, float]:
        types = {n.name: n.gpu_type for n in nodes}
        observation = ThroughputRecord(RESNET, types[node], NodeName(node), 1, 1, per_gpu, NOW)  # type: ignore[index]
        settings = EstimatorSettings(min_records=1, assumed_gpu_speedup=5.0)
        tables = (
            Estimator(nodes, Knowledge(records=(observation,)), settings, NOW)
            .estimate(RESNET)
            .tables
        )
        return {gpu_type: table.aggregated[1] for gpu_type, table in tables.items()}

    assert alone("n0", 100.0) == pytest.approx({A: 100.0, B: 100.0, CPU: 20.0})
    assert alone("n3", 10.0) == pytest.approx({A: 50.0, B: 50.0, CPU: 10.0})


def test_a_type_without_measurements_uses_those_of_other_types() -> None:
    estimate = estimate_of(knowledge(*records(3, 70.0, 2), fits=(theory(),)))
    assert estimate.tables[B].aggregated[1] == pytest.approx(70.0)
    assert estimate.tables[B].source_of(1, 1) == "theory from a100, 4 records"
    assert estimate_of(knowledge(fits=(theory(),))).tables[B].aggregated[1] == pytest.approx(100.0)
    assert estimate_of(Knowledge()).tables[B].aggregated[1] == pytest.approx(1.0)


def test_paper_tables_use_spread_runs_for_their_number_of_servers_only() -> None:
    spread_and_packed = knowledge(
        *records(3, 30.0, 8, nodes=2), *records(3, 90.0, 8), fits=(theory(),)
    )
    table = estimate_of(spread_and_packed, model=PAPER).tables[A]
    assert per_gpu(table, 16, 2) == per_gpu(table, 2, 2)
    assert (table.distributed[2], table.aggregated[8]) == (pytest.approx(30), pytest.approx(90))
    assert table.source_of(8, 2) == "type, 3 records"


def test_a_server_has_its_ratio_to_the_type() -> None:
    uneven_servers = knowledge(*records(3, 100.0), *records(3, 50.0, node=N1))
    factors = estimate_of(uneven_servers).server_factor
    assert factors == {"n0": pytest.approx(100 / 75), "n1": pytest.approx(50 / 75)}


def test_a_server_with_few_records_counts_as_average() -> None:
    few_records = knowledge(*records(3, 100.0), *records(2, 50.0, node=N1))
    assert set(estimate_of(few_records).server_factor) == {"n0"}


def test_a_slow_server_is_not_blamed_on_those_it_was_spread_with() -> None:
    alone = [*records(3, 100.0), *records(3, 60.0, node=N1)]
    spread = records(9, 50.0, 2, nodes=2) + records(9, 50.0, 2, nodes=2, node=N1)
    before, after = estimate_of(knowledge(*alone)), estimate_of(knowledge(*alone, *spread))
    assert before.server_factor == after.server_factor


def test_the_operators_table_is_final() -> None:
    table = {A: ThroughputTable({1: 7.0})}
    operators_knowledge = Knowledge(
        tables={RESNET: table},
        server_factor={RESNET: {N1: 0.5}},
        records=tuple(records(9, 100.0)),
        theory=(theory(),),
    )
    assert estimate_of(operators_knowledge).tables == table
    assert estimate_of(operators_knowledge).server_factor == {N1: 0.5}


def test_workloads_do_not_mix() -> None:
    two_workloads = knowledge(*records(3, 100.0), *records(3, 5.0, workload=WorkloadName("bert")))
    estimator = Estimator(NODES, two_workloads, EstimatorSettings(), NOW)
    assert estimator.estimate(RESNET).tables[A].aggregated[1] == 100.0
    assert estimator.estimate(WorkloadName("bert")).tables[A].aggregated[1] == 5.0


any_record = st.builds(
    record,
    st.floats(1e-3, 1e6),
    st.integers(1, 8),
    node=st.sampled_from([node.name for node in NODES]),
    nodes=st.integers(1, 3),
    at=st.floats(NOW - 1e7, NOW + 100.0),
)


@given(st.lists(any_record, max_size=40), st.booleans(), st.integers(1, 4))
def test_every_shape_has_an_answer_within_the_measured_range(
    reports: list[ThroughputRecord], has_fit: bool, min_records: int
) -> None:
    reported_knowledge = knowledge(*reports, fits=(theory(),) if has_fit else ())
    answer = estimate_of(reported_knowledge, min_records=min_records)
    rates = [report.per_gpu for report in reports]
    for node in NODES:
        table = answer.tables[node.gpu_type]
        assert set(range(1, node.gpus + 1)) <= set(table.aggregated)
        assert 2 in table.distributed
        for source, rate in zip(
            [*table.aggregated_source.values(), *table.distributed_source.values()],
            [*table.aggregated.values(), *table.distributed.values()],
            strict=True,
        ):
            assert rate > 0
            if source.startswith("type") and not source.endswith(("values", "neighbours")):
                assert min(rates) * 0.999 <= rate <= max(rates) * 1.001
    for factor in answer.server_factor.values():
        assert factor > 0


@given(st.lists(any_record, max_size=40))
def test_the_order_of_records_does_not_matter(reports: list[ThroughputRecord]) -> None:
    estimate, reversed_estimate = (
        estimate_of(knowledge(*reports)),
        estimate_of(knowledge(*reversed(reports))),
    )
    for gpu_type, table in estimate.tables.items():
        assert table.aggregated == pytest.approx(reversed_estimate.tables[gpu_type].aggregated)
        assert table.distributed == pytest.approx(reversed_estimate.tables[gpu_type].distributed)
    assert estimate.server_factor == pytest.approx(reversed_estimate.server_factor)


def test_theory_slows_down_with_more_gpus() -> None:
    table = estimate_of(knowledge(fits=(theory(),))).tables[A]
    rates = [table.aggregated[n] for n in range(1, 9)] + [table.distributed[2]]
    assert all(slower <= faster for faster, slower in pairwise(rates))


def test_a_type_without_basic_times_borrows_how_the_training_scales() -> None:
    """Otherwise hops would expect the training to scale perfectly within a server there."""
    wide = (Node(NodeName("n0"), A, 8, 8), Node(NodeName("n2"), B, 8, 8))
    two_bandwidths = Knowledge(
        theory=(theory(),), bandwidth=tuple(Bandwidth(t, 1e7, 4e6) for t in (A, B))
    )
    tables = Estimator(wide, two_bandwidths, EstimatorSettings(), NOW).estimate(RESNET).tables
    for gpus in range(1, 9):
        assert tables[B].aggregated[gpus] == pytest.approx(tables[A].aggregated[gpus])
    assert tables[B].aggregated[8] < 0.9 * tables[B].aggregated[1]
