"""Which jobs hold GPUs for nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopsd.health.idle import IDLE_SECONDS, IdleJob, IdleWatch, Use


def watch(*uses: tuple[float, int, float | None]) -> IdleJob | None:
    """What is found at the last look."""
    job = IdleWatch()
    return [job.note(Use(*use)) for use in uses][-1]


def test_a_notebook_that_sleeps_is_told_within_five_minutes() -> None:
    looks = [(30.0 + 60 * i, 0, 7.0) for i in range(5)]
    idle_job = watch(*looks)
    assert idle_job is not None
    assert looks[-1][0] <= 300
    assert "no step and 0 s of processor time in 4 min" in idle_job.text


def test_one_that_computed_and_stopped_says_so() -> None:
    busy = [(60.0 * i, 100 * i, 50.0 * i) for i in range(10)]
    idle_looks = [(600.0 + 60.0 * i, 900, 460.0) for i in range(6)]
    assert watch(*busy) is None
    idle_job = watch(*busy, *idle_looks)
    assert idle_job is not None
    assert "after 900 steps" in idle_job.text


@pytest.mark.parametrize("steps", [0, 1])
def test_steps_or_processor_time_alone_are_work(steps: int) -> None:
    """Steps without processor time, and a program that no plugin sees."""
    assert watch(*((60.0 * i, steps * i, 30.0 * i * (1 - steps)) for i in range(20))) is None


def test_what_slurm_does_not_gather_is_not_judged() -> None:
    assert watch(*((60.0 * i, 0, None) for i in range(20))) is None
    assert watch((0.0, 0, 5.0), (60.0, 0, None), (IDLE_SECONDS + 30, 0, 5.0)) is None


@given(st.lists(st.floats(2.0, 60.0), min_size=1, max_size=40))
def test_who_works_in_each_minute_is_never_idle(seconds: list[float]) -> None:
    job, total = IdleWatch(), 0.0
    for minute, cpu_seconds in enumerate(seconds):
        total += cpu_seconds
        assert job.note(Use(60.0 * minute, 0, total)) is None
