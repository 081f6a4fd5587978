"""Run times predicted from past runs."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hopsd.core.queue.run_time import (
    LAST_STEP,
    Distribution,
    RunTimeQuery,
    RunTimes,
    by_declared,
    by_loops,
)
from hopsd.model.ids import UserName, WorkloadName
from hopsd.model.knowledge import PastRun

ANN, BOB, EVE = UserName("ann"), UserName("bob"), UserName("eve")
JOB = RunTimeQuery(ANN, "lab", "train", WorkloadName("w"), mean_gpus=2.0)
amounts = st.lists(st.floats(1e-3, 1e9), min_size=1, max_size=20)


def run(hours: float, **fields: object) -> PastRun:
    """One of Ann's runs of the workload, on two GPUs."""
    usual = PastRun(ANN, "lab", "train", WorkloadName("w"), hours * 3600, hours * 7200, 0.0, 0.0)
    return replace(usual, **fields)


@given(amounts, st.floats(0.0, 1e12))
def test_a_run_takes_at_least_its_elapsed_time(past_hours: list[float], run_seconds: float) -> None:
    distribution = Distribution.from_amounts(past_hours)
    low, high = distribution.interval(run_seconds)
    assert run_seconds <= distribution.total(run_seconds) < inf
    assert run_seconds <= low <= high


@given(amounts)
def test_a_run_is_expected_to_take_about_the_mean_before_it_starts(past_hours: list[float]) -> None:
    mean = sum(past_hours) / len(past_hours)
    assert mean * 0.999 <= Distribution.from_amounts(past_hours).total(0.0) <= 1.03 * mean


@given(amounts, st.lists(st.floats(0.0, 1e10), min_size=2, max_size=2))
def test_the_expected_end_moves_back_with_the_elapsed_time(
    past_hours: list[float], run_seconds: list[float]
) -> None:
    distribution, (shorter, longer) = Distribution.from_amounts(past_hours), sorted(run_seconds)
    assert distribution.total(shorter) <= distribution.total(longer) * (1 + 1e-9)


def test_more_runs_that_agree_narrow_the_interval() -> None:
    widths = []
    for count in (1, 3, 14):
        low, high = Distribution.from_amounts([100.0] * count).interval(0.0)
        widths.append(high / low)
    assert widths[0] > widths[1] > widths[2] > 1.0
    assert widths[0] > 2.0


def test_a_job_that_outlives_short_runs_counts_as_a_long_one() -> None:
    """Past runs: three crashes in the first minute and one run of ten hours."""
    distribution = Distribution.from_amounts([20.0, 30.0, 40.0, 36_000.0])
    assert distribution.total(0.0) == pytest.approx(9_000.0, rel=0.1)
    assert distribution.total(300.0) == pytest.approx(36_000.0, rel=0.1)


def test_a_job_longer_than_all_earlier_ones_is_expected_to_take_as_long_again() -> None:
    assert Distribution.from_amounts([10.0, 11.0]).total(500.0) == 1_000.0


def test_the_nearest_kind_with_enough_runs_decides() -> None:
    workload = WorkloadName("other")
    workload_runs = [run(1.0)]
    named_runs = [run(2.0, workload=workload)] * 2
    any_own = [run(4.0, workload=workload, name="eval")] * 4
    lab = [run(8.0, user=user, workload=workload) for user in (BOB, EVE, UserName("joe"))] * 3
    expectations = [
        RunTimes(runs).expect(JOB)
        for runs in (
            workload_runs + named_runs + any_own + lab,
            named_runs + any_own + lab,
            any_own + named_runs[1:] + lab,
            any_own[1:] + lab,
            lab[:3],
        )
    ]
    assert [e and e.source for e in expectations] == [
        "from 1 run of this workload by ann",
        "from 2 runs of jobs named train by ann",
        "from 5 runs by ann",
        "from 12 runs by 4 users of account lab",
        None,
    ]
    hours = [e.seconds / 3600 for e in expectations[:2] if e and e.seconds]
    assert hours == pytest.approx([1.0, 2.0], rel=0.1)


def test_no_user_poisons_the_predictions_of_another() -> None:
    """Others' runs of a shared workload name count as the account's, with equal weight per user."""
    honest = [run(1.0, user=UserName(f"u{n}")) for n in range(9)]
    floods = [run(1e-3, user=EVE)] * 1000
    with_floods = RunTimes(honest + floods).expect(JOB)
    assert with_floods is not None
    assert with_floods.seconds == pytest.approx(0.9 * 3600, rel=0.1)
    with_one_run = RunTimes([run(1.0), *floods]).expect(JOB)
    assert with_one_run is not None
    assert with_one_run.seconds == pytest.approx(3600, rel=0.1)


def test_runs_of_one_kind_are_compared_by_gpu_time() -> None:
    """One hour on 8 GPUs is four hours on two."""
    expectation = RunTimes([run(1.0, gpu_seconds=8 * 3600.0)] * 3).expect(JOB)
    assert expectation is not None
    assert expectation.seconds == pytest.approx(4 * 3600, rel=0.1)


def test_runs_are_compared_by_samples_if_all_report_them() -> None:
    counted_runs = [run(1.0, samples=1000.0), run(9.0, samples=1000.0)]
    expectation = RunTimes(counted_runs).expect(replace(JOB, run_seconds=60.0, samples=400.0))
    assert expectation is not None
    assert expectation.seconds is None
    assert expectation.samples == pytest.approx(1000.0, rel=0.15)
    silent = RunTimes([*counted_runs, run(1.0)]).expect(
        replace(JOB, run_seconds=60.0, samples=400.0)
    )
    assert silent is not None
    assert silent.samples is None
    by_gpu_time = RunTimes(counted_runs).expect(replace(JOB, run_seconds=60.0, gpu_seconds=120.0))
    assert by_gpu_time is not None
    assert by_gpu_time.samples is None


def test_the_time_limit_bounds_the_remaining_time() -> None:
    ran = replace(JOB, run_seconds=1800.0, gpu_seconds=3600.0, most_seconds=600.0)
    expectation = RunTimes([run(5.0)] * 4).expect(ran)
    assert expectation is not None
    assert expectation.seconds == 2400.0
    assert expectation.high == 1.0


def test_runs_with_broken_numbers_are_left_out() -> None:
    broken_runs = [run(1.0, seconds=0.0), run(1.0, gpu_seconds=inf), run(1.0, samples=float("nan"))]
    assert RunTimes(broken_runs).expect(JOB) is None
    assert RunTimes([*broken_runs, run(1.0)]).expect(JOB) is not None


@given(amounts.map(max), st.floats(0.0, 1e12))
def test_a_loop_that_the_job_outran_is_not_a_promise(
    loop_samples: float, samples_done: float
) -> None:
    expectation = by_loops(loop_samples, samples_done)
    assert expectation.samples is not None
    assert (
        expectation.samples == loop_samples
        or samples_done < expectation.samples <= 1.01 * samples_done
    )


def test_a_last_step_counted_in_full_does_not_mean_a_longer_job() -> None:
    """Regression: the demo's job of 14,000 samples on three GPUs was expected to double in length
    when it ended, since steps of 96 make 14,016.
    """
    assert by_declared(14_000.0, 14_016.0) == 14_016.0


@given(
    st.floats(1e-3, 1e18),
    st.floats(1.0 + LAST_STEP, 1e6, exclude_min=True),
    st.floats(1.0, 1e6),
)
def test_declaring_fewer_samples_never_looks_shorter_once_they_are_done(
    claim: float, ratio: float, factor: float
) -> None:
    """The expected total is at least twice what is done, and at most six times that."""
    assume(claim * ratio > (1.0 + LAST_STEP) * claim)
    assert by_declared(claim, claim) == claim
    samples_done = claim * ratio
    expectation = by_declared(claim, samples_done)
    assert 2.0 * samples_done <= expectation <= 6.0 * samples_done
    assert by_declared(claim / factor, samples_done) >= expectation
