"""The figures of section 8, computed by hand and as properties of generated timelines."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopsd.model.allocation import Allocation
from hopsd.model.ids import JobId
from hopsd.sim.metrics import (
    AllocationChange,
    JobBaseline,
    holds_by_job,
    job_outcomes,
    round_states,
    summarise,
    throughput_over_time,
)


def facts(job: str, submit: float, age: float = 100.0, gpus_max: int = 2) -> JobBaseline:
    return JobBaseline(
        JobId(job),
        submit,
        age,
        age * 1.5,
        age * 1.2,
        gpus_max,
        rate=lambda allocation: 10.0 * allocation.gpus,
    )


def change(time: float, job: str, **gpus_by_node: int) -> AllocationChange:
    return AllocationChange(time, JobId(job), Allocation.of(gpus_by_node))


def test_a_timeline_matches_values_by_hand() -> None:
    """Two jobs share 4 GPUs: b waits 10 s, runs, is preempted for 20 s, runs elsewhere and ends."""
    jobs = [facts("a", 0.0), facts("b", 0.0, age=50.0)]
    changes = [
        change(0.0, "a", n0=2),
        change(10.0, "b", n1=2),
        change(40.0, "b"),
        change(60.0, "b", n0=1),
        change(100.0, "a"),
        change(100.0, "b"),
    ]
    a, b = job_outcomes(changes, jobs, gpus=4)
    assert (a.first_start, a.end, a.wait, a.restarts) == (0.0, 100.0, 0.0, 0)
    assert (b.first_start, b.end, b.wait, b.restarts) == (10.0, 100.0, 30.0, 1)
    assert b.latency_ratio == pytest.approx(30.0 / 50.0)
    assert a.gpu_seconds_held == 200.0
    assert b.gpu_seconds_held == 30.0 * 2 + 40.0 * 1
    # Two jobs are present all the time, so each has half of the 4 GPUs: 120 s on one mean GPU are
    # 60 s on 2 GPUs, and 150 s by the mean of run times are 75 s.
    assert (a.ftf, a.ftf_eq9) == (pytest.approx(100.0 / 60.0), pytest.approx(100.0 / 75.0))
    assert (b.ftf, b.ftf_eq9) == (pytest.approx(100.0 / 30.0), pytest.approx(100.0 / 37.5))

    states = round_states(changes, jobs, 4, [0.0, 30.0, 50.0, 100.0])
    assert [s.queued for s in states] == [1, 0, 1, 0]
    assert [s.running for s in states] == [1, 2, 1, 0]
    assert [s.idle for s in states] == [2, 0, 2, 4]
    assert [s.fragments for s in states] == [2, 0, 2, 0]
    assert [s.throughput for s in states] == [20.0, 40.0, 20.0, 0.0]

    summary = summarise([a, b], states, 4)
    assert summary.makespan_h == pytest.approx(100.0 / 3600)
    assert summary.avg_wait_h == pytest.approx(15.0 / 3600)
    assert summary.avg_fragments == 1.0
    assert summary.gpu_utilisation == pytest.approx(300.0 / 400.0)
    assert summary.unfair_share == 1.0
    assert summary.max_latency_ratio == pytest.approx(0.6)


def test_entries_of_one_instant_are_one_change() -> None:
    """Vacating and placing at the same time is one move; on the same GPUs it is a restart."""
    changes = [
        change(0.0, "a", n0=2),
        change(5.0, "a"),
        change(5.0, "a", n1=1),
        change(5.0, "a", n1=2),
        change(7.0, "a"),
        change(7.0, "a", n1=2),
        change(9.0, "a"),
    ]
    [a] = job_outcomes(changes, [facts("a", 0.0)], gpus=2)
    assert a.restarts == 2
    assert a.wait == 0.0
    holds = holds_by_job(changes)[JobId("a")]
    assert [(h.start, h.end) for h in holds] == [(0.0, 5.0), (5.0, 7.0), (7.0, 9.0)]


def test_an_unfinished_job_waits_until_the_last_change() -> None:
    changes = [change(0.0, "a", n0=2), change(50.0, "a")]
    a, b = job_outcomes(changes, [facts("a", 0.0), facts("b", 20.0)], gpus=2)
    assert (a.end, b.end) == (50.0, None)
    assert (b.wait, b.first_start, b.ftf) == (30.0, None, None)


def test_the_fair_share_counts_only_gpus_that_the_job_can_use() -> None:
    """The fair share of a single job on a large cluster is all of it; the job can use 2 GPUs."""
    [a] = job_outcomes([change(0.0, "a", n0=2), change(60.0, "a")], [facts("a", 0.0)], gpus=512)
    assert a.ftf == pytest.approx(1.0)


def test_rounding_errors_make_no_job_unfair() -> None:
    """Jobs that are always alone and exactly as fast as on their share, but for rounding errors."""
    jobs = [facts(str(n), n * 1000.1, age=n / 7.0) for n in range(1, 200)]
    ends = [job.submit + job.age * 0.6 for job in jobs]
    changes = []
    for job, end in zip(jobs, ends, strict=True):
        changes += [change(job.submit, job.id, n0=2), change(end, job.id)]
    outcomes = job_outcomes(changes, jobs, gpus=2)
    assert any(o.ftf != 1.0 for o in outcomes)
    assert summarise(outcomes, [], 2).unfair_share == 0.0


@st.composite
def timelines(draw: st.DrawFn) -> tuple[list[AllocationChange], list[JobBaseline], int]:
    """Jobs that start, pause and end at whole seconds on one server each."""
    count = draw(st.integers(1, 6))
    changes, jobs = [], []
    for number in range(count):
        submit = draw(st.integers(0, 50))
        jobs.append(facts(str(number), float(submit)))
        moments = sorted(draw(st.sets(st.integers(submit, 200), min_size=2, max_size=8)))
        moments = moments[: len(moments) // 2 * 2]
        for i, moment in enumerate(moments):
            gpus_by_node = {f"n{number}": 1} if i % 2 == 0 else {}
            changes.append(
                AllocationChange(float(moment), JobId(str(number)), Allocation.of(gpus_by_node))
            )
    return sorted(changes, key=lambda c: c.time), jobs, count


@given(timelines())
def test_no_time_is_lost_or_counted_twice(
    case: tuple[list[AllocationChange], list[JobBaseline], int],
) -> None:
    """For each job, waiting + holding = end - submit; over all jobs, the states add up."""
    changes, jobs, gpus = case
    outcomes = job_outcomes(changes, jobs, gpus)
    for outcome in outcomes:
        assert outcome.end is not None
        assert outcome.wait + outcome.gpu_seconds_held == pytest.approx(
            outcome.end - outcome.submit
        )
    times = [float(t) for t in range(0, 210, 7)]
    for state in round_states(changes, jobs, gpus, times):
        assert state.running + state.idle == gpus
        present = sum(o.submit <= state.time < (o.end or math.inf) for o in outcomes)
        assert state.queued + state.running == present
    change_times, rate = throughput_over_time(changes, jobs)
    gpu_seconds = sum(o.gpu_seconds_held for o in outcomes)
    assert float((rate[:-1] * (change_times[1:] - change_times[:-1])).sum()) == pytest.approx(
        10.0 * gpu_seconds
    )


def test_a_job_waiting_when_the_run_stops_has_not_ended() -> None:
    changes = [change(0.0, "a", n0=2), change(50.0, "a"), change(50.0, "b", n0=2)]
    jobs = [facts("a", 0.0), facts("b", 20.0)]
    a, _ = job_outcomes(changes, jobs, 2, {JobId("a"), JobId("b")})
    assert (a.end, a.ftf, a.wait) == (None, None, 0.0)
    [state] = round_states(changes, jobs, 2, [60.0], unfinished_jobs={JobId("a"), JobId("b")})
    assert (state.queued, state.running, state.fragments) == (1, 1, 0)
