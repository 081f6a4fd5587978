"""A workload whose batch size changes: which of its measurements still count, and how."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from speed_values import NODES, NOW, RESNET, A, estimate_of, knowledge, record, theory

from hopsd.core.speed.batches import carried_over, split
from hopsd.core.speed.estimator import Estimator, EstimatorSettings
from hopsd.core.speed.layers import by_workload
from hopsd.core.speed.throughput import IterationModel, per_gpu
from hopsd.model.ids import NodeName
from hopsd.model.knowledge import Knowledge, ThroughputRecord

COMPUTE, FIXED_SECONDS, NETWORK = 0.008, 0.02, 0.25
"""Seconds per sample, per iteration and, over two servers, for communication."""


def seconds(batch: float, nodes: int = 1) -> float:
    return FIXED_SECONDS + COMPUTE * batch + (NETWORK if nodes > 1 else 0.0)


def run(batch: float, gpus: int = 1, nodes: int = 1, time: float = NOW) -> list[ThroughputRecord]:
    """Six reports of a run on n0, or n0 and n1."""
    return [
        record(
            batch / seconds(batch, nodes),
            gpus,
            nodes=nodes,
            node=NodeName(node),
            at=time + i,
            batch=batch,
        )
        for node in ("n0", "n1")[:nodes]
        for i in range(6)
    ]


def speed(
    knowledge: Knowledge, gpus: int, nodes: int, model: IterationModel | None = None
) -> float:
    settings = EstimatorSettings(model=model or IterationModel())
    return per_gpu(
        Estimator(NODES, knowledge, settings, NOW).estimate(RESNET).tables[A], gpus, nodes
    )


def test_a_change_of_the_batch_leaves_the_network_time_unchanged() -> None:
    """64 to 8 samples: a fifth of the speed remains over two servers, three fifths on one."""
    before = [*run(64, time=NOW - 900), *run(64, 2, 2, time=NOW - 800)]
    fit = theory(
        batch_size=8,
        params=0,
        t_f=COMPUTE * 8 / 3,
        t_b=COMPUTE * 8 * 2 / 3,
        t_u=FIXED_SECONDS,
        mu_cache=0,
    )
    knowledge = Knowledge(records=(*before, *run(8)), theory=(fit,))
    real, old = 8 / seconds(8, 2), 64 / seconds(64, 2)
    assert speed(knowledge, 1, 1) == pytest.approx(8 / seconds(8))
    assert speed(knowledge, 2, 2) == pytest.approx(real, rel=0.25)
    assert old > 2 * real
    # The paper knows no batch sizes.
    assert speed(knowledge, 2, 2, IterationModel(paper_exact=True)) == pytest.approx(old)


def test_nothing_is_carried_over_without_a_shape_measured_at_both_batches() -> None:
    assert carried_over({(2, 2): 1.0}, {(1, 1): 1.0}) == {}
    assert carried_over({(2, 2): 1.0, (1, 1): 0.5}, {(1, 1): 0.1}) == {(2, 2): pytest.approx(0.6)}
    # An iteration always takes time: a result below 0 is dropped.
    assert carried_over({(2, 2): 0.3, (1, 1): 0.5}, {(1, 1): 0.1}) == {}


def test_a_constant_global_batch_is_not_a_change() -> None:
    records = [*run(64), *run(32, 2, 2), *run(16, 4)]
    present, before = split(records)
    assert (sorted(map(str, present)), before) == (sorted(map(str, records)), [])
    changed_batches = [*run(128, time=NOW - 90), *run(64, 2, 2, time=NOW - 80), *records]
    present, before = split(changed_batches)
    assert sorted(map(str, present)) == sorted(map(str, records))
    assert len(before) == len(changed_batches) - len(records)


def test_only_the_last_of_several_former_batches_counts() -> None:
    first, second, present = run(8, time=NOW - 90), run(16, time=NOW - 80), run(64)
    assert split([*first, *second, *present]) == (present, second)


def test_two_jobs_of_one_name_do_not_alternate_the_batch() -> None:
    draw = random.Random(5)
    reports: list[ThroughputRecord] = []
    for tick in range(40):
        # Each has a record for each of its nodes.
        two_runs = [run(64, 2, 2, time=NOW + tick), run(24, 4, 2, time=NOW + tick + 0.5)]
        reports += [report for job in draw.sample(two_runs, 2) for report in (job[0], job[6])]
        present, _ = split(reports)
        assert {report.batch for report in present} == {64.0}


@given(st.lists(st.tuples(st.floats(0, 1e6), st.integers(1, 64), st.floats(0, 1e9)), max_size=30))
def test_each_record_is_in_one_part_and_those_without_batch_are_current(
    cases: list[tuple[float, int, float]],
) -> None:
    records = [record(10.0, gpus, batch=batch, at=time) for batch, gpus, time in cases]
    present, before = split(records)
    ids = [id(report) for report in (*present, *before)]
    assert len(ids) == len(set(ids))
    assert set(ids) <= {id(report) for report in records}
    assert all(report in present for report in records if report.batch == 0.0)
    assert not records or present


def test_reports_without_a_batch_count_as_before() -> None:
    records = [record(50.0, 2, nodes=2) for _ in range(4)]
    fits = (theory(),)
    estimate = estimate_of(knowledge(*records, fits=fits))
    assert per_gpu(estimate.tables[A], 2, 2) == pytest.approx(50.0)


def test_records_from_before_batches_were_reported_do_not_shorten_an_iteration() -> None:
    batch_records = run(64, 2, 2)
    untold = [replace(report, batch=0.0, at=report.at - 100) for report in batch_records]
    layers = by_workload([*untold, *untold, *batch_records], 86400.0, NOW)[RESNET]
    shape = layers.type[A].shapes[2, 2]
    assert shape.iteration_seconds == pytest.approx(seconds(64, 2))
    assert shape.batch == pytest.approx(64)


def test_nothing_is_carried_over_for_a_program_that_divides_its_batch() -> None:
    """64 samples on all GPUs become 128: eight GPUs on two servers compute 16 each, not 128."""
    before = [*run(64, time=NOW - 900), *run(8, 8, 2, time=NOW - 800)]
    t_f = COMPUTE * 128 / 3
    fit = theory(batch_size=128, params=0, t_f=t_f, t_b=2 * t_f, t_u=FIXED_SECONDS, mu_cache=0)
    present = tuple(run(128))
    knowledge, forgetful = (
        Knowledge(records=r, theory=(fit,)) for r in ((*before, *present), present)
    )
    assert speed(knowledge, 8, 2) == speed(forgetful, 8, 2)
