"""Slowdown of a training across leaf switches: measured, or from a bandwidth."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from speed_values import NOW, A, estimate_of, records, theory

from hopsd.core.speed.across import implied_across, measured_across, theory_across
from hopsd.core.speed.estimator import EstimatorSettings, SpeedTables
from hopsd.core.speed.theory import basic_times
from hopsd.core.speed.throughput import IterationModel, per_gpu
from hopsd.model.ids import UserName, WorkloadName
from hopsd.model.knowledge import Bandwidth, Knowledge, ThroughputRecord

OTHER_WORKLOAD = WorkloadName("other")
MODEL = EstimatorSettings().model


def spread(
    per_gpu: float, leaves: int, user: str = "ann", **changes: object
) -> list[ThroughputRecord]:
    """Three reports of eight GPUs on two servers."""
    return records(3, per_gpu, 8, nodes=2, leaves=leaves, user=UserName(user), **changes)


def test_a_shape_measured_on_one_leaf_and_on_two_gives_the_factor() -> None:
    assert measured_across(spread(100.0, 1) + spread(80.0, 2), 3) == {2: pytest.approx(0.8)}


def test_too_few_records_give_no_factor() -> None:
    assert measured_across(spread(100.0, 1) + spread(80.0, 2)[:2], 3) == {}
    assert measured_across(spread(80.0, 2), 3) == {}


def test_one_user_of_three_cannot_change_the_factor() -> None:
    reports = [
        *spread(100.0, 1, "ann"),
        *spread(80.0, 2, "ann"),
        *spread(50.0, 1, "bob"),
        *spread(40.0, 2, "bob"),
        *spread(100.0, 1, "eve"),
        *spread(1e-3, 2, "eve"),
    ]
    assert measured_across(reports, 3) == {2: pytest.approx(0.8)}


@given(st.floats(1e5, 4e6), st.floats(1e4, 4e6))
def test_a_bandwidth_across_leaves_follows_from_its_factor(params: float, rate: float) -> None:
    times = basic_times(theory(params=params), Bandwidth(A, 1e7, 4e6))
    assert times is not None
    factor = theory_across(times, rate, (16, 2), MODEL)
    bandwidth = implied_across(times, factor, (16, 2), MODEL)
    if bandwidth is not None:
        assert theory_across(times, bandwidth, (16, 2), MODEL) == pytest.approx(factor, rel=1e-6)
    else:
        assert factor > 0.98 or factor == 0.05


def test_speeds_across_leaves_are_converted_to_those_below_one_leaf() -> None:
    knowledge = Knowledge(records=tuple(spread(100.0, 1) + spread(80.0, 2) + spread(80.0, 2)))
    estimate = estimate_of(knowledge)
    assert estimate.across == {1: 1.0, 2: pytest.approx(0.8)}
    assert per_gpu(estimate.tables[A], 8, 2) == pytest.approx(100.0)


def estimate_with(b_across: float, reports: tuple[ThroughputRecord, ...] = ()) -> SpeedTables:
    bandwidth = (Bandwidth(A, 1e7, 4e6, NOW, b_across),)
    return estimate_of(Knowledge(records=reports, theory=(theory(),), bandwidth=bandwidth))


def test_a_calibrated_bandwidth_predicts_a_job_that_never_crossed_leaves() -> None:
    factor = estimate_with(1e6).across[2]
    times = basic_times(theory(), Bandwidth(A, 1e7, 4e6))
    assert times is not None
    assert factor == pytest.approx(theory_across(times, 1e6, (16, 2), MODEL))
    assert factor < 0.6
    assert estimate_with(4e6).across == {}
    assert estimate_with(0.0).across == {}


def test_measurements_take_precedence_over_calibration() -> None:
    reports = (*spread(100.0, 1), *spread(90.0, 2))
    assert estimate_with(1e6, reports=reports).across[2] == pytest.approx(0.9)


def test_other_trainings_slowdowns_predict_that_of_a_new_one() -> None:
    """Nobody calibrated across leaves, but a training of the same size has crossed them."""
    spread_records = (
        *spread(100.0, 1, workload=OTHER_WORKLOAD),
        *spread(60.0, 2, workload=OTHER_WORKLOAD),
    )
    fits = (theory(), theory(workload=OTHER_WORKLOAD))
    bandwidth = (Bandwidth(A, 1e7, 4e6, NOW),)
    knowledge = Knowledge(records=spread_records, theory=fits, bandwidth=bandwidth)
    assert estimate_of(knowledge).across == {1: 1.0, 2: pytest.approx(0.6)}
    assert estimate_of(replace(knowledge, theory=(theory(params=1.0), fits[1]))).across == {}


def test_paper_exact_ignores_leaves() -> None:
    knowledge = Knowledge(records=tuple(spread(100.0, 1) + spread(80.0, 2)), theory=(theory(),))
    assert estimate_of(knowledge, model=IterationModel(paper_exact=True)).across == {}
