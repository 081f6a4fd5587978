"""Length of a job's training, from the loops that its processes report."""

from __future__ import annotations

from dataclasses import replace

from hopsd.core.report.reports import Report
from hopsd.core.report.training_state import samples_planned
from hopsd.model.ids import JobId, NodeName, UserName
from hopsd.model.reading import JobReading, SlurmState

JOB = JobId("17")
READ = JobReading(
    id=JOB,
    user=UserName("ann"),
    uid=1000,
    name="train",
    comment="hops:reqs=1",
    partition="main",
    state=SlurmState.RUNNING,
    submit=0.0,
)
HALF = Report(
    job=JOB,
    run=0,
    node=NodeName("n0"),
    rank=0,
    pid=1,
    program="",
    world=1,
    first_step=10.0,
    at=20.0,
    iterations=100,
    saved_iterations=None,
    planned_iterations=200.0,
    samples=3200.0,
    timed_iterations=0,
    timed_samples=0.0,
    timed_seconds=0.0,
    phases=None,
    profiling=False,
)


def planned_samples(*reports: Report, restarts: int = 0) -> float | None:
    return samples_planned(reports, {JOB: replace(READ, restarts=restarts)}).get(JOB)


def test_loops_are_assumed_to_have_equal_samples() -> None:
    assert planned_samples(HALF) == 6400.0


def test_all_ranks_train_as_long_as_the_rank_that_reports_its_length() -> None:
    silent = replace(HALF, rank=1, pid=2, planned_iterations=None)
    assert planned_samples(HALF, silent) == 12800.0


def test_a_resumed_run_adds_its_remaining_samples() -> None:
    """The first run stopped after 100 iterations of 200, all saved; 40 of 100 are repeated."""
    first = replace(HALF, saved_iterations=100)
    second = replace(HALF, run=1, pid=3, iterations=40, samples=1280.0, planned_iterations=100.0)
    assert planned_samples(first, second, restarts=1) == 6400.0


def test_a_profile_runs_length_counts_until_the_job_reports_its_own() -> None:
    profile_report = replace(HALF, profiling=True)
    assert planned_samples(profile_report) == 6400.0
    itself = replace(HALF, run=1, pid=3, planned_iterations=400.0)
    assert planned_samples(profile_report, itself, restarts=1) == 12800.0


def test_a_length_that_a_run_no_longer_reports_is_forgotten() -> None:
    """Another program runs, or a counter is no longer steady. A run that has just begun may still
    report a length.
    """
    restarted_report = replace(HALF, run=1, pid=3, planned_iterations=None)
    read = {JOB: replace(READ, restarts=1)}
    assert samples_planned([HALF, restarted_report], read) == {}
    later = replace(restarted_report, at=restarted_report.first_step + 60.0)
    assert samples_planned([HALF, later], read) == {JOB: None}


def test_no_length_is_given_without_planned_or_measured_iterations() -> None:
    assert planned_samples(replace(HALF, planned_iterations=None)) is None
    assert planned_samples(replace(HALF, iterations=0, samples=0.0)) is None
    assert planned_samples(replace(HALF, samples=0.0)) is None
