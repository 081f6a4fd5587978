"""How long a job runs, from past runs."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopsd.core.queue.run_time import Distribution, RunTimeQuery, RunTimes, by_declared, by_loops
from hopsd.model.ids import UserName, WorkloadName
from hopsd.model.knowledge import PastRun

ANN, BOB, EVE = UserName("ann"), UserName("bob"), UserName("eve")
JOB = RunTimeQuery(ANN, "lab", "train", WorkloadName("w"), mean_gpus=2.0)
amounts = st.lists(st.floats(1e-3, 1e9), min_size=1, max_size=20)


def run(hours: float, **other: object) -> PastRun:
    """One of Ann's runs of the workload, on two GPUs."""
    usual = PastRun(ANN, "lab", "train", WorkloadName("w"), hours * 3600, hours * 7200, 0.0, 0.0)
    return replace(usual, **other)


@given(amounts, st.floats(0.0, 1e12))
def test_a_run_takes_at_least_what_it_has_taken(past: list[float], done: float) -> None:
    made = Distribution.from_amounts(past)
    low, high = made.interval(done)
    assert done <= made.total(done) < inf
    assert done <= low <= high


@given(amounts)
def test_before_it_starts_a_run_is_expected_to_be_about_the_mean(past: list[float]) -> None:
    mean = sum(past) / len(past)
    assert mean * 0.999 <= Distribution.from_amounts(past).total(0.0) <= 1.03 * mean


@given(amounts, st.lists(st.floats(0.0, 1e10), min_size=2, max_size=2))
def test_the_longer_it_has_run_the_later_it_ends(past: list[float], done: list[float]) -> None:
    made, (less, more) = Distribution.from_amounts(past), sorted(done)
    assert made.total(less) <= made.total(more) * (1 + 1e-9)


def test_more_runs_that_agree_narrow_the_interval() -> None:
    widths = []
    for count in (1, 3, 14):
        low, high = Distribution.from_amounts([100.0] * count).interval(0.0)
        widths.append(high / low)
    assert widths[0] > widths[1] > widths[2] > 1.0
    assert widths[0] > 2.0


def test_a_job_that_outlives_short_runs_is_one_of_the_long_ones() -> None:
    """Three crashes in the first minute and one run of ten hours."""
    made = Distribution.from_amounts([20.0, 30.0, 40.0, 36_000.0])
    assert made.total(0.0) == pytest.approx(9_000.0, rel=0.1)
    assert made.total(300.0) == pytest.approx(36_000.0, rel=0.1)


def test_a_job_longer_than_all_before_takes_as_long_again() -> None:
    assert Distribution.from_amounts([10.0, 11.0]).total(500.0) == 1_000.0


def test_the_nearest_kind_that_is_known_well_enough_decides() -> None:
    other = WorkloadName("other")
    own = [run(1.0)]
    named = [run(2.0, workload=other)] * 2
    any_own = [run(4.0, workload=other, name="eval")] * 4
    lab = [run(8.0, user=user, workload=other) for user in (BOB, EVE, UserName("joe"))] * 3
    found = [
        RunTimes(runs).expect(JOB)
        for runs in (
            own + named + any_own + lab,
            named + any_own + lab,
            any_own + named[1:] + lab,
            any_own[1:] + lab,
            lab[:3],
        )
    ]
    assert [e and e.source for e in found] == [
        "from 1 run of this workload by ann",
        "from 2 runs of jobs named train by ann",
        "from 5 runs by ann",
        "from 12 runs by 4 users of account lab",
        None,
    ]
    hours = [e.seconds / 3600 for e in found[:2] if e and e.seconds]
    assert hours == pytest.approx([1.0, 2.0], rel=0.1)


def test_nobody_poisons_anothers_prediction() -> None:
    """Others\' runs of a shared workload name count as the account\'s, and each user once."""
    honest = [run(1.0, user=UserName(f"u{n}")) for n in range(9)]
    floods = [run(1e-3, user=EVE)] * 1000
    found = RunTimes(honest + floods).expect(JOB)
    assert found is not None
    assert found.seconds == pytest.approx(0.9 * 3600, rel=0.1)
    own = RunTimes([run(1.0), *floods]).expect(JOB)
    assert own is not None
    assert own.seconds == pytest.approx(3600, rel=0.1)


def test_alike_runs_are_compared_by_gpu_time() -> None:
    """An hour on 8 GPUs is four hours on two."""
    found = RunTimes([run(1.0, gpu_seconds=8 * 3600.0)] * 3).expect(JOB)
    assert found is not None
    assert found.seconds == pytest.approx(4 * 3600, rel=0.1)


def test_samples_are_compared_where_all_runs_report_them() -> None:
    counted = [run(1.0, samples=1000.0), run(9.0, samples=1000.0)]
    found = RunTimes(counted).expect(replace(JOB, run_seconds=60.0, samples=400.0))
    assert found is not None
    assert found.seconds is None
    assert found.samples == pytest.approx(1000.0, rel=0.15)
    silent = RunTimes([*counted, run(1.0)]).expect(replace(JOB, run_seconds=60.0, samples=400.0))
    assert silent is not None
    assert silent.samples is None
    unreported = RunTimes(counted).expect(replace(JOB, run_seconds=60.0, gpu_seconds=120.0))
    assert unreported is not None
    assert unreported.samples is None


def test_the_time_limit_bounds_what_is_left() -> None:
    ran = replace(JOB, run_seconds=1800.0, gpu_seconds=3600.0, most_seconds=600.0)
    found = RunTimes([run(5.0)] * 4).expect(ran)
    assert found is not None
    assert found.seconds == 2400.0
    assert found.high == 1.0


def test_runs_with_broken_numbers_are_left_out() -> None:
    broken = [run(1.0, seconds=0.0), run(1.0, gpu_seconds=inf), run(1.0, samples=float("nan"))]
    assert RunTimes(broken).expect(JOB) is None
    assert RunTimes([*broken, run(1.0)]).expect(JOB) is not None


@given(amounts.map(max), st.floats(0.0, 1e12))
def test_a_loop_that_was_outlived_is_no_promise(planned: float, done: float) -> None:
    expected = by_loops(planned, done)
    assert expected.samples is not None
    assert expected.samples == planned or done < expected.samples <= 1.01 * done


@given(st.floats(1e-3, 1e18), st.floats(1.0, 1e6, exclude_min=True), st.floats(1.0, 1e6))
def test_declaring_less_never_looks_shorter_once_that_is_done(
    declared: float, beyond: float, less: float
) -> None:
    """As much again is left at least, and no claim brings more than five times that."""
    assert by_declared(declared, declared) == declared
    done = declared * beyond
    expected = by_declared(declared, done)
    assert 2.0 * done <= expected <= 6.0 * done
    assert by_declared(declared / less, done) >= expected
