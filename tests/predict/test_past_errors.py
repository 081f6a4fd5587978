"""The spread of past runs, corrected by how well it predicted later jobs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from predict_situations import job, situation

from hopsd.model.ids import JobId
from hopsd.predict.past_errors import COMMON_ERROR, MAX_JOBS, PastRunErrors
from hopsd.predict.situation import RunTimeSource, Situation

RUNNING = replace(
    situation([job("1", 1000.0, 2, gpus_by_node={"n0": 2})]),
    sources=(RunTimeSource.PAST_RUNS,),
    spread=np.array([0.5]),
)
"""A job with 1,000 s of work left according to past runs."""


def scale_after(
    errors: PastRunErrors, seconds: float, count: int, present: Situation = RUNNING
) -> float:
    """Return the scale after ``count`` jobs that took ``seconds``."""
    for _ in range(count):
        errors.watch(present)
        errors.end(JobId("1"), present.now + seconds)
    return errors.scale


def test_the_spread_is_unchanged_until_jobs_have_ended() -> None:
    assert PastRunErrors().scale == pytest.approx(1.0, abs=0.05)


def test_typical_runs_narrow_the_spread_and_others_widen_it() -> None:
    assert scale_after(PastRunErrors(), 1000.0 * np.exp(0.05), 20) < 0.3
    two_deviations = 2.0 * np.hypot(0.5, COMMON_ERROR)
    assert scale_after(PastRunErrors(), 1000.0 * np.exp(two_deviations), 20) == pytest.approx(
        2.0 / 0.6745, rel=0.01
    )


def test_an_interrupted_run_teaches_little() -> None:
    errors = PastRunErrors()
    assert scale_after(errors, 1.0, 2) < 2.0 * PastRunErrors().scale


def test_work_counts_instead_of_time() -> None:
    """A job that was slowed down and stopped for a while still did the expected work."""
    errors = PastRunErrors()
    half = replace(RUNNING, rate=np.array([0.5]), now=RUNNING.now + 400.0)
    without_gpus = replace(
        RUNNING, gpus_held=np.zeros(1), rate=np.zeros(1), now=RUNNING.now + 600.0
    )
    later = replace(RUNNING, now=RUNNING.now + 5000.0)
    for _ in range(20):
        for present in (RUNNING, half, without_gpus, later):
            errors.watch(present)
        errors.end(JobId("1"), later.now + 500.0)
    assert errors.scale < 0.3


def test_cancelled_jobs_and_known_work_teach_nothing() -> None:
    errors = PastRunErrors()
    errors.watch(RUNNING)
    errors.forget(JobId("1"))
    errors.end(JobId("1"), RUNNING.now + 9e6)
    sampled_job = replace(RUNNING, sources=(RunTimeSource.SAMPLES,), spread=np.zeros(1))
    assert scale_after(errors, 9e6, 20, sampled_job) == PastRunErrors().scale


def test_the_newest_jobs_count() -> None:
    errors = PastRunErrors()
    scale_after(errors, 1e5, MAX_JOBS)
    assert scale_after(errors, 1000.0, MAX_JOBS) == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("state", [None, {"errors": [9.0]}, [-1.0, None, "9", float("nan")]])
def test_what_is_no_error_is_not_restored(state: object) -> None:
    errors = PastRunErrors()
    errors.restore(state)
    assert errors.scale == PastRunErrors().scale
