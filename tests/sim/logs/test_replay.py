"""Logged jobs simulated again, and what happened to them in reality."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sim_cases import cluster

from hopsd.errors import InputError
from hopsd.model.history import LoggedJob, Stretch
from hopsd.model.ids import GpuType, JobId, UserName
from hopsd.policies.registry import get
from hopsd.sim.engine import SimulationSettings
from hopsd.sim.logs.replay import as_it_was, assumptions, replay
from hopsd.sim.study import play

CLUSTER = cluster(n0=2)
START, END = 1000.0, 10000.0


def log_entry(
    name: str, since: float, *runs: Stretch, gpus: int = 2, gpu_type: str = ""
) -> LoggedJob:
    return LoggedJob(JobId(name), UserName("u"), "lab", since, gpus, runs, False, GpuType(gpu_type))


FIRST_JOB = log_entry("1", 1000.0, Stretch(1000.0, 2000.0, 2))
LATE_JOB = log_entry("2", 1000.0, Stretch(4000.0, 5000.0, 2))


def test_reality_has_the_same_figures_as_a_policy() -> None:
    replayed_log = replay([FIRST_JOB, LATE_JOB], CLUSTER, START, END, 10)
    was = as_it_was(replayed_log, CLUSTER, 500.0)
    assert [(o.first_start, o.end, o.wait) for o in was.outcomes] == [
        (0.0, 1000.0, 0.0),
        (3000.0, 4000.0, 3000.0),
    ]
    assert was.summary.gpu_utilisation == pytest.approx(0.5)
    # Both GPUs are idle from 1000 to 3000 while job 2 waits, in four of eight rounds.
    assert was.summary.avg_fragments == pytest.approx(1.0)


def test_jobs_take_as_long_under_a_policy_as_in_reality() -> None:
    replayed_log = replay([FIRST_JOB, LATE_JOB], CLUSTER, START, END, 10)
    result = play("fifo", get("fifo"), CLUSTER, replayed_log.workload, SimulationSettings(500.0))
    assert [(o.first_start, o.end) for o in result.outcomes] == [(0.0, 1000.0), (1000.0, 2000.0)]


def test_only_time_within_the_period_counts() -> None:
    runs = (Stretch(0.0, 1500.0, 2), Stretch(9500.0, None, 2))
    (job,) = replay([log_entry("1", -500.0, *runs)], CLUSTER, START, END, 10).jobs
    assert job.since == START
    assert job.runs == (Stretch(1000.0, 1500.0, 2), Stretch(9500.0, 10000.0, 2))
    assert job.gpu_seconds == 2000.0


def test_a_restarted_job_is_one_job() -> None:
    job = log_entry("1", 1000.0, Stretch(1000.0, 2000.0, 2), Stretch(3000.0, 3500.0, 2))
    replayed_log = replay([job], CLUSTER, START, END, 10)
    assert [job.samples for job in replayed_log.workload.jobs] == [3000.0]
    (was,) = as_it_was(replayed_log, CLUSTER, 500.0).outcomes
    assert (was.wait, was.restarts) == (1000.0, 1)


def test_the_newest_jobs_are_kept_and_the_period_begins_with_them() -> None:
    replayed_log = replay([FIRST_JOB, replace(LATE_JOB, since=2500.0)], CLUSTER, START, END, 1)
    assert ([job.id for job in replayed_log.jobs], replayed_log.start, replayed_log.older) == (
        ["2"],
        2500.0,
        1,
    )


def test_a_job_runs_on_the_requested_type() -> None:
    two_types = cluster(n0=2, b0=2)
    typed_jobs = [
        replace(FIRST_JOB, gpu_type=GpuType("b")),
        replace(LATE_JOB, gpu_type=GpuType("none")),
    ]
    replayed_log = replay(typed_jobs, two_types, START, END, 10)
    tables = [replayed_log.workload.throughput[job.workload] for job in replayed_log.workload.jobs]
    assert [sorted(table) for table in tables] == [["b"], ["a", "b"]]
    assert replayed_log.unknown_types == 1


def test_jobs_that_never_ran_are_counted_and_an_empty_log_is_an_error() -> None:
    waiting = log_entry("3", 1000.0)
    assert replay([FIRST_JOB, waiting], CLUSTER, START, END, 10).never_ran == 1
    with pytest.raises(InputError, match="no job with GPUs ran"):
        replay([waiting], CLUSTER, START, END, 10)


def test_a_reused_id_names_two_jobs() -> None:
    later = replace(LATE_JOB, id=FIRST_JOB.id, since=3000.0)
    assert [j.id for j in replay([FIRST_JOB, later], CLUSTER, START, END, 10).jobs] == ["1", "1-2"]


def test_assumptions_are_stated() -> None:
    text = " ".join(
        assumptions(replay([FIRST_JOB, LATE_JOB], CLUSTER, START, END, 10), machine="told")
    )
    assert "2 jobs with GPUs of 1 user, as told" in text
    assert "No job is moved" in text
    assert "2 jobs had no time limit" in text


@given(
    st.lists(
        st.tuples(st.floats(0, 9000), st.floats(0, 5000), st.floats(1, 5000), st.integers(1, 2)),
        min_size=1,
        max_size=8,
    )
)
def test_no_gpu_second_is_lost_or_added(jobs: list[tuple[float, float, float, int]]) -> None:
    logged_jobs = [
        log_entry(str(i), since, Stretch(since + wait, since + wait + run, gpus), gpus=gpus)
        for i, (since, wait, run, gpus) in enumerate(jobs)
    ]
    whole = replay(logged_jobs, CLUSTER, 0.0, 30000.0, 10)
    split = [part for job in logged_jobs for part in (job.clip(0, 7000), job.clip(7000, 30000))]
    total = sum(run * gpus for _, _, run, gpus in jobs)
    assert sum(job.gpu_seconds for job in whole.jobs) == pytest.approx(total)
    assert sum(job.gpu_seconds for job in split) == pytest.approx(total)
    was = as_it_was(whole, CLUSTER, 1000.0)
    assert sum(o.gpu_seconds_held for o in was.outcomes) == pytest.approx(total)
    for job, outcome in zip(whole.jobs, was.outcomes, strict=True):
        assert outcome.wait == pytest.approx(job.runs[0].start - job.since, abs=1e-6)
