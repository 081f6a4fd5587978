"""How a process ends that gives its GPU back."""

from __future__ import annotations

import sys

import pytest
from hops_profiler.timing import ending
from hops_profiler.timing.counts import PHASES, Counts

from hopsd.core.report import rates


def test_closed_streams_do_not_keep_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python has None for them."""
    monkeypatch.setattr(ending, "PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    ending.end_run("7", first=False)


@pytest.mark.parametrize(
    ("seconds", "iterations"), [(0.002, 500), (0.03, 34), (0.1, 10), (3.0, 10)]
)
def test_a_profile_run_measures_as_much_as_hopsd_learns_from(
    seconds: float, iterations: int
) -> None:
    """Of iterations of 30 ms ten were measured: too little for hopsd to learn a speed from."""
    counts = Counts()
    while not ending.enough(counts, most=20):
        counts.time(seconds, dict.fromkeys(PHASES, 0.0), 8, 1)
    assert counts.iteration.count == pytest.approx(iterations, abs=1)
    assert counts.iteration.count >= rates.MIN_ITERATIONS
    assert counts.iteration.sum >= rates.MIN_SECONDS


def test_a_profile_run_of_uneven_iterations_ends_with_the_most() -> None:
    counts = Counts()
    while not ending.enough(counts, most=20):
        counts.time(1.0 + counts.iteration.count % 2, dict.fromkeys(PHASES, 0.0), 8, 1)
    assert counts.iteration.count == 20
