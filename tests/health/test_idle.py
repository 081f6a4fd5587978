"""Find jobs that hold GPUs without using them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopsd.health.idle import IDLE_SECONDS, IdleJob, IdleWatch, Use


def watch(*uses: tuple[float, int, float | None]) -> IdleJob | None:
    """Return what the last look finds."""
    job = IdleWatch()
    return [job.note(Use(*use)) for use in uses][-1]


def test_a_sleeping_notebook_is_found_within_five_minutes() -> None:
    looks = [(30.0 + 60 * i, 0, 7.0) for i in range(5)]
    idle_job = watch(*looks)
    assert idle_job is not None
    assert looks[-1][0] <= 300
    assert "no step and 0 s of processor time in 4 min" in idle_job.text


def test_the_text_gives_the_steps_before_the_job_became_idle() -> None:
    busy = [(60.0 * i, 100 * i, 50.0 * i) for i in range(10)]
    idle_looks = [(600.0 + 60.0 * i, 900, 460.0) for i in range(6)]
    assert watch(*busy) is None
    idle_job = watch(*busy, *idle_looks)
    assert idle_job is not None
    assert "after 900 steps" in idle_job.text


@pytest.mark.parametrize("steps", [0, 1])
def test_a_job_with_steps_or_processor_time_is_not_idle(steps: int) -> None:
    """One job makes steps without processor time; the other is a program without the plugin."""
    assert watch(*((60.0 * i, steps * i, 30.0 * i * (1 - steps)) for i in range(20))) is None


def test_a_job_without_accounting_is_not_judged() -> None:
    assert watch(*((60.0 * i, 0, None) for i in range(20))) is None
    assert watch((0.0, 0, 5.0), (60.0, 0, None), (IDLE_SECONDS + 30, 0, 5.0)) is None


@given(st.lists(st.floats(2.0, 60.0), min_size=1, max_size=40))
def test_a_job_that_computes_every_minute_is_never_idle(seconds: list[float]) -> None:
    job, total = IdleWatch(), 0.0
    for minute, cpu_seconds in enumerate(seconds):
        total += cpu_seconds
        assert job.note(Use(60.0 * minute, 0, total)) is None
