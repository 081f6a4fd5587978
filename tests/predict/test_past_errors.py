"""Past runs tell a spread; how jobs then fared tells whether it was right."""

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
"""1,000 s of work left, as past runs tell."""


def after(errors: PastRunErrors, seconds: float, count: int, present: Situation = RUNNING) -> float:
    """The scale after jobs that all took so long."""
    for _ in range(count):
        errors.watch(present)
        errors.end(JobId("1"), present.now + seconds)
    return errors.scale


def test_the_spread_is_as_told_until_jobs_have_ended() -> None:
    assert PastRunErrors().scale == pytest.approx(1.0, abs=0.05)


def test_runs_as_long_as_those_before_make_it_narrower_and_others_wider() -> None:
    assert after(PastRunErrors(), 1000.0 * np.exp(0.05), 20) < 0.3
    two_deviations = 2.0 * np.hypot(0.5, COMMON_ERROR)
    assert after(PastRunErrors(), 1000.0 * np.exp(two_deviations), 20) == pytest.approx(
        2.0 / 0.6745, rel=0.01
    )


def test_a_run_that_was_broken_off_says_little() -> None:
    errors = PastRunErrors()
    assert after(errors, 1.0, 2) < 2.0 * PastRunErrors().scale


def test_work_counts_not_time() -> None:
    """A job that was slowed down, and stopped for a while, did what was expected."""
    errors = PastRunErrors()
    half = replace(RUNNING, rate=np.array([0.5]), now=RUNNING.now + 400.0)
    stopped = replace(RUNNING, gpus_held=np.zeros(1), rate=np.zeros(1), now=RUNNING.now + 600.0)
    again = replace(RUNNING, now=RUNNING.now + 5000.0)
    for _ in range(20):
        for present in (RUNNING, half, stopped, again):
            errors.watch(present)
        errors.end(JobId("1"), again.now + 500.0)
    assert errors.scale < 0.3


def test_a_cancelled_job_and_one_of_known_work_teach_nothing() -> None:
    errors = PastRunErrors()
    errors.watch(RUNNING)
    errors.forget(JobId("1"))
    errors.end(JobId("1"), RUNNING.now + 9e6)
    known = replace(RUNNING, sources=(RunTimeSource.SAMPLES,), spread=np.zeros(1))
    assert after(errors, 9e6, 20, known) == PastRunErrors().scale


def test_the_newest_jobs_count() -> None:
    errors = PastRunErrors()
    after(errors, 1e5, MAX_JOBS)
    assert after(errors, 1000.0, MAX_JOBS) == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("state", [None, {"errors": [9.0]}, [-1.0, None, "9", float("nan")]])
def test_what_is_no_error_is_not_restored(state: object) -> None:
    errors = PastRunErrors()
    errors.restore(state)
    assert errors.scale == PastRunErrors().scale
