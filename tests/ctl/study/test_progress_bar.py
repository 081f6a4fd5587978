"""The progress messages of a long command without a terminal."""

from __future__ import annotations

import pytest

from hopsd.ctl.study import progress_bar


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(progress_bar, "monotonic", lambda: now[0])
    return now


def test_a_short_run_writes_nothing(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar.ProgressBar("hops", "jobs") as bar:
        for step in range(100):
            clock[0] += 5
            bar.show(step, 100)
    assert capsys.readouterr().err == ""


def test_a_long_run_writes_the_remaining_time_at_its_present_pace(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    with progress_bar.ProgressBar("hops", "jobs") as bar:
        bar.show(50_000, 100_000)  # replayed from a journal, which takes no time
        for step in (55_000, 60_000, 60_000):
            clock[0] += progress_bar.LINE_SECONDS
            bar.show(step, 100_000)
    assert capsys.readouterr().err.splitlines() == [
        "hopsctl: hops: 55,000 of 100,000 jobs, left: 8m10s",
        "hopsctl: hops: 60,000 of 100,000 jobs, left: 1h20m",
        "hopsctl: hops: 60,000 of 100,000 jobs, left: -",
    ]
