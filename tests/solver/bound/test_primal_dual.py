"""Descents prove bounds that hold, and their mean choice is near a solution of the relaxation."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
from scipy.optimize import linprog

from hopsd.model.arrays import Floats
from hopsd.solver.bound.volume import Packing, descend


def packing(seed: int, rows: int = 6, jobs: int = 12) -> tuple[Packing, Floats]:
    """Jobs with some columns each, and the matrix (rows, columns)."""
    rng = np.random.default_rng(seed)
    job = np.sort(rng.integers(0, jobs, 5 * jobs))
    matrix = rng.integers(0, 4, (rows, len(job))) * (rng.random((rows, len(job))) < 0.5)
    row, column = np.nonzero(matrix)
    entries = column, row, matrix[row, column].astype(np.float64)
    value = rng.uniform(0.5, 2.0, len(job)) * matrix.sum(axis=0)
    return Packing.of(value, job, entries, np.full(rows, 8.0)), matrix.astype(np.float64)


def relaxation(asked: Packing, matrix: Floats) -> float:
    """By the simplex method."""
    one_each = (np.unique(asked.job)[:, None] == asked.job).astype(np.float64)
    limit = np.concatenate([np.ones(len(one_each)), asked.limit])
    return -float(linprog(-asked.value, np.vstack([one_each, matrix]), limit).fun)


@pytest.mark.parametrize("seed", range(8))
def test_the_bound_comes_close_to_the_relaxation_from_above(seed: int) -> None:
    asked, matrix = packing(seed)
    best = relaxation(asked, matrix)
    found = descend(asked, np.zeros(len(asked.limit)), 0.95 * best, 600, 1.0, inf)
    assert best * (1 - 1e-9) <= found.bound <= 1.02 * best
    assert found.bound == asked.bound(found.prices)
    assert np.all(found.prices >= 0.0)


@pytest.mark.parametrize("seed", range(8))
def test_the_mean_choice_is_nearly_feasible_and_nearly_as_good(seed: int) -> None:
    asked, matrix = packing(seed)
    best = relaxation(asked, matrix)
    found = descend(asked, np.zeros(len(asked.limit)), 0.95 * best, 600, 1.0, inf)
    assert np.all(np.bincount(asked.job, found.x) <= 1 + 1e-9)
    assert np.all(matrix @ found.x <= 1.15 * asked.limit)
    assert abs(asked.value @ found.x - best) <= 0.05 * best


def test_without_columns_or_time_the_prices_stay() -> None:
    asked, _ = packing(0)
    none = asked.some(np.zeros(0, dtype=np.int64), asked.limit)
    start = np.ones(len(asked.limit))
    assert np.array_equal(descend(none, start, 0.0, 10, 1.0, inf).prices, start)
    late = descend(asked, start, 0.0, 10, 1.0, 0.0)
    assert np.array_equal(late.prices, start)
    assert late.bound == asked.bound(start)
