"""From which run on a node is slower than others, where no run saw it become so."""

from __future__ import annotations

import numpy as np
import pytest

from hopsd.health.onsets import slower_from

RUN, SPREAD = 0.005**2, 0.001**2


def begin(losses: list[float], *, cells: list[int] | None = None, level: float = 0.0) -> int:
    """Of runs that lose ``losses``, each but for what runs have of their own."""
    n = len(losses)
    noise = np.random.default_rng(3).normal(0.0, np.sqrt(RUN) / 3.0, n)
    numbers = np.array(cells or range(n), np.int64)
    return slower_from(
        np.array(losses) + noise, np.full(n, RUN), numbers, np.full(n, level), SPREAD
    )


def test_the_first_slower_run_is_named() -> None:
    assert begin([0.0] * 6 + [0.02] * 4) == 6


@pytest.mark.parametrize("losses", [[0.0] * 10, [0.02] * 10, [0.0] * 9 + [0.005], [0.03], []])
def test_no_run_is_where_all_are_alike_or_hardly_differ(losses: list[float]) -> None:
    assert begin(losses) == 0


def test_runs_of_one_workload_are_no_more_certain_than_what_it_takes_elsewhere() -> None:
    losses = [0.0] * 6 + [0.02] * 4
    assert begin(losses, cells=[0, 1, 2, 3, 4, 5, 6, 6, 6, 6], level=0.01**2) == 0
    assert begin(losses, cells=[0] * 10, level=0.01**2) == 6  # its own past tells
