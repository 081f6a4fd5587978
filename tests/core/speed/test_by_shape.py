"""Every shape with its own counts, and what a measured shape implies for the others."""

from __future__ import annotations

from math import log

import pytest
from hypothesis import given
from hypothesis import strategies as st
from speed_values import (
    NODES,
    NOW,
    PAPER,
    RESNET,
    A,
    estimate_of,
    knowledge,
    record,
    records,
    theory,
)

from hopsd.core.placement.available import AvailableResources
from hopsd.core.placement.generate import generate
from hopsd.core.placement.pools import pools_of
from hopsd.core.placement.sensitivity import sensitivity_on
from hopsd.core.speed.estimator import Estimator, EstimatorSettings, SpeedTables
from hopsd.core.speed.throughput import (
    BasicTimes,
    Communication,
    DataTime,
    IterationModel,
    Pattern,
    configuration_throughput,
    per_gpu,
    theory_per_gpu,
)
from hopsd.model.allocation import Allocation
from hopsd.model.ids import JobId, NodeName, UserName, WorkloadName
from hopsd.model.job import Job
from hopsd.model.knowledge import Bandwidth, Knowledge, ThroughputRecord

N0, N1 = NodeName("n0"), NodeName("n1")
SHAPES = [(1, 1), (2, 1), (5, 1), (8, 1), (2, 2), (5, 2), (16, 2), (3, 3), (40, 5)]
MODELS = [IterationModel(communication=form) for form in Communication]
TIMES = BasicTimes(
    10.0, 1e6, Pattern.SERIAL, 0.02, 0.05, 0.01, DataTime(1.0, 0.02, 0.001), 1e7, 4e6
)
"""Times that follow from the theory and the bandwidth in speed_values."""


def job(estimate: SpeedTables, **changes: object) -> Job:
    values = {"id": JobId("1"), "user": UserName("u"), "submit": 0.0, "wait_seconds": 0.0,
              "reqs": (1, 2, 4, 8), "throughput": estimate.tables,
              "server_factor": estimate.server_factor,
              "server_factor_at": estimate.server_factor_at}  # fmt: skip
    return Job(**values | changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("model", MODELS)
def test_every_shape_is_predicted_at_its_own_counts(model: IterationModel) -> None:
    table = estimate_of(knowledge(fits=(theory(),)), model=model).tables[A]
    for gpus, nodes in SHAPES:
        assert per_gpu(table, gpus, nodes) == pytest.approx(
            theory_per_gpu(TIMES, gpus, nodes, model)
        )


@pytest.mark.parametrize("model", MODELS)
@given(st.lists(st.sampled_from(SHAPES), min_size=1, max_size=5, unique=True))
def test_a_record_that_confirms_theory_changes_nothing(
    model: IterationModel, shapes: list[tuple[int, int]]
) -> None:
    before = estimate_of(knowledge(fits=(theory(),)), model=model).tables[A]
    records_of_shapes = [
        r for g, n in shapes for r in records(3, per_gpu(before, g, n), g, nodes=n)
    ]
    after = estimate_of(knowledge(*records_of_shapes, fits=(theory(),)), model=model).tables[A]
    for gpus, nodes in SHAPES:
        assert per_gpu(after, gpus, nodes) == pytest.approx(per_gpu(before, gpus, nodes), rel=1e-6)
        if (gpus, nodes) not in shapes:
            assert "scaled" not in after.source_of(gpus, nodes)


@pytest.mark.parametrize("model", MODELS)
def test_two_gpus_on_two_servers_do_not_predict_eight(model: IterationModel) -> None:
    knowledge_of_two = knowledge(*records(3, 30.0, 2, nodes=2), fits=(theory(),))
    table = estimate_of(knowledge_of_two, model=model).tables[A]
    assert per_gpu(table, 2, 2) == pytest.approx(30.0)
    assert table.source_of(2, 2) == "type, 3 records"
    assert table.source_of(8, 2).startswith("theory, 4 records")
    if model.communication is not Communication.PAPER:
        assert per_gpu(table, 8, 2) < 0.9 * per_gpu(table, 2, 2)


def test_two_gpus_on_two_servers_predict_eight_under_paper_exact() -> None:
    knowledge_of_two = knowledge(*records(3, 30.0, 2, nodes=2), fits=(theory(),))
    table = estimate_of(knowledge_of_two, model=PAPER).tables[A]
    assert per_gpu(table, 8, 2) == per_gpu(table, 2, 2) == pytest.approx(30.0)


@pytest.mark.parametrize("model", [*MODELS, PAPER])
def test_sensitivity_is_one_gpu_over_one_on_each_of_two_servers(model: IterationModel) -> None:
    estimate = estimate_of(knowledge(fits=(theory(),)), model=model)
    rho = sensitivity_on(job(estimate, throughput={A: estimate.tables[A]}), pools_of(NODES))
    theory_ratio = theory_per_gpu(TIMES, 1, 1, model) / theory_per_gpu(TIMES, 2, 2, model)
    assert rho == pytest.approx(theory_ratio)


def test_a_slow_network_slows_only_shapes_that_use_it() -> None:
    model = IterationModel(communication=Communication.SWITCHED)
    plain = estimate_of(knowledge(fits=(theory(),)), model=model).tables[A]
    slow = records(3, 0.5 * per_gpu(plain, 2, 2), 2, nodes=2)
    table = estimate_of(knowledge(*slow, fits=(theory(),)), model=model).tables[A]
    assert per_gpu(table, 1, 1) > 0.95 * per_gpu(plain, 1, 1)
    assert per_gpu(table, 16, 2) < 0.65 * per_gpu(plain, 16, 2)


def test_the_network_speed_is_found_without_calibration() -> None:
    """What three shapes imply about an unmeasured network predicts the speed of others."""
    model = IterationModel(communication=Communication.SWITCHED)
    for b_net in (1.5e6, 4e6, 4e7):
        truth = Bandwidth(A, 1e7, b_net)
        real = estimate_of(Knowledge(theory=(theory(),), bandwidth=(truth,)), model=model).tables[A]
        observations = [
            r for s in ((4, 1), (2, 2), (8, 2)) for r in _records(per_gpu(real, *s), *s)
        ]
        table = estimate_of(
            Knowledge(theory=(theory(),), records=tuple(observations)), model=model
        ).tables[A]
        for shape in ((16, 2), (6, 3), (12, 3)):
            assert per_gpu(table, *shape) == pytest.approx(per_gpu(real, *shape), rel=0.1)


def _records(rate: float, gpus: int, nodes: int) -> list[ThroughputRecord]:
    return records(3, rate, gpus, nodes=nodes)


def test_an_estimate_is_surer_with_more_and_nearer_measurements() -> None:
    def width(*observations: ThroughputRecord, is_calibrated: bool = True) -> float:
        knowledge_of_width = knowledge(*observations, fits=(theory(),))
        if not is_calibrated:
            knowledge_of_width = Knowledge(
                records=knowledge_of_width.records, theory=knowledge_of_width.theory
            )
        by_shape = estimate_of(knowledge_of_width).tables[A].by_shape
        assert by_shape is not None
        low, high = by_shape.interval(8, 2)
        assert low < by_shape.per_gpu(8, 2) < high
        return log(high / low)

    width_without_records, neighbour = width(), width(*records(3, 25.0, 6, nodes=2))
    far, itself = width(*records(3, 25.0, 2, nodes=2)), width(*records(3, 25.0, 8, nodes=2))
    assert itself < neighbour < far < width_without_records < width(is_calibrated=False)
    scattered_records = [record(rate, 8, nodes=2) for rate in (20.0, 25.0, 30.0)]
    assert itself < width(*scattered_records)


def test_a_server_uses_its_own_record_and_others_the_mean() -> None:
    slow_at_two = [*records(3, 100.0), *records(3, 100.0, node=N1),
                   *records(3, 90.0, 2), *records(3, 60.0, 2, node=N1)]  # fmt: skip
    estimate = estimate_of(knowledge(*slow_at_two, fits=(theory(),)))
    types = {node.name: node.gpu_type for node in NODES}
    elastic_job = job(estimate, throughput={A: estimate.tables[A]})

    def rate(node: NodeName, gpus: int) -> float:
        return configuration_throughput(elastic_job, Allocation(((node, gpus),)), types) / gpus

    assert rate(N1, 1) == pytest.approx(100.0)
    assert rate(N1, 2) == pytest.approx(60.0)
    assert rate(N0, 2) == pytest.approx(90.0)
    assert rate(N1, 4) == pytest.approx(rate(N0, 4) * 0.9 / 1.1)
    columns = generate(
        [elastic_job], AvailableResources.idle(NODES), [None], sigma=1.0, keep_present=False
    )
    throughput_by_shape = {
        tuple(columns.shapes.parts(int(shape))[0]): float(throughput)
        for shape, throughput in zip(columns.shape, columns.throughput, strict=True)
    }
    for node, index in ((N0, 0), (N1, 1)):
        for gpus in (1, 2, 4):
            assert throughput_by_shape[index, gpus] == pytest.approx(gpus * rate(node, gpus))


any_record = st.builds(
    record,
    st.floats(1e-6, 1e9),
    st.integers(1, 64),
    node=st.sampled_from([node.name for node in NODES]),
    nodes=st.integers(1, 8),
    at=st.floats(NOW - 1e9, NOW + 100.0),
)


@given(st.lists(any_record, max_size=60), st.booleans(), st.sampled_from([*MODELS, PAPER]))
def test_every_shape_has_a_speed_whatever_is_reported(
    reports: list[ThroughputRecord], has_fit: bool, model: IterationModel
) -> None:
    reported_knowledge = knowledge(*reports, fits=(theory(),) if has_fit else ())
    for table in estimate_of(reported_knowledge, min_records=1, model=model).tables.values():
        for gpus, nodes in (*SHAPES, (1024, 128), (65_536, 8192)):
            assert 1e-6 <= per_gpu(table, gpus, nodes) <= 1e9
            if table.by_shape is not None:
                low, high = table.by_shape.interval(gpus, nodes)
                assert 0.0 < low <= per_gpu(table, gpus, nodes) <= high


def test_unmeasured_workloads_have_a_speed() -> None:
    estimate = estimate_of(Knowledge())
    assert all(per_gpu(t, *shape) > 0 for t in estimate.tables.values() for shape in SHAPES)
    assert RESNET


def test_a_new_version_of_a_program_inherits_figures_with_less_weight() -> None:
    old, new = WorkloadName("u/j/s.sh@12+aa"), WorkloadName("u/j/s.sh@12+bb")
    before = [record(50.0, 2, nodes=2, workload=old) for _ in range(9)]
    fits = (theory(workload=old),)

    def speeds(*observations: ThroughputRecord) -> tuple[SpeedTables, float, float]:
        estimator = Estimator(
            NODES, knowledge(*before, *observations, fits=fits), EstimatorSettings(), NOW
        )
        by_shape = estimator.estimate(new).tables[A].by_shape
        assert by_shape is not None
        low, high = by_shape.interval(2, 2)
        return estimator.estimate(new), by_shape.per_gpu(2, 2), high / low

    estimate, rate, width = speeds()
    assert estimate.tables[A].source_of(1, 1).startswith("older version's theory, 4 records")
    assert 33.3 < rate < 50.0
    _, measured_rate, sure = speeds(*(record(20.0, 2, nodes=2, workload=new) for _ in range(3)))
    assert measured_rate == pytest.approx(20.0)
    assert sure < width
    alone = Estimator(NODES, knowledge(fits=(theory(),)), EstimatorSettings(), NOW)
    assert per_gpu(alone.estimate(new).tables[A], 1, 1) == pytest.approx(1.0)
