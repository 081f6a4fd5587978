"""Find the run from which on a node is slower, if no run was there when it became slow."""

from __future__ import annotations

import numpy as np
import pytest

from hopsd.health.onsets import slower_from

RUN, SPREAD = 0.005**2, 0.001**2


def begin(losses: list[float], *, cells: list[int] | None = None, level: float = 0.0) -> int:
    """Return the onset on a node whose runs lose ``losses``, each with a little noise."""
    n = len(losses)
    noise = np.random.default_rng(3).normal(0.0, np.sqrt(RUN) / 3.0, n)
    numbers = np.array(cells or range(n), np.int64)
    return slower_from(
        np.array(losses) + noise, np.full(n, RUN), numbers, np.full(n, level), SPREAD
    )


def test_the_first_slower_run_is_found() -> None:
    assert begin([0.0] * 6 + [0.02] * 4) == 6


@pytest.mark.parametrize("losses", [[0.0] * 10, [0.02] * 10, [0.0] * 9 + [0.005], [0.03], []])
def test_runs_that_hardly_differ_have_no_onset(losses: list[float]) -> None:
    assert begin(losses) == 0


def test_runs_of_a_workload_are_no_more_certain_than_its_level_elsewhere() -> None:
    losses = [0.0] * 6 + [0.02] * 4
    assert begin(losses, cells=[0, 1, 2, 3, 4, 5, 6, 6, 6, 6], level=0.01**2) == 0
    assert begin(losses, cells=[0] * 10, level=0.01**2) == 6  # compared with the node's own past
