"""Prices and solutions of a packing come close to those of the simplex method."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import linprog

from hopsd.model.arrays import Floats
from hopsd.solver.bound.primal_dual import Packing, Saddle, approach


def packing(seed: int, rows: int = 6, jobs: int = 12) -> tuple[Packing, Floats]:
    """Jobs with some columns each, and the matrix (rows, columns)."""
    rng = np.random.default_rng(seed)
    job = np.sort(rng.integers(0, jobs, 5 * jobs))
    matrix = rng.integers(0, 4, (rows, len(job))) * (rng.random((rows, len(job))) < 0.5)
    row, column = np.nonzero(matrix)
    entries = column, row, matrix[row, column].astype(np.float64)
    value = rng.uniform(0.5, 2.0, len(job)) * matrix.sum(axis=0)
    return Packing.build(value, job, entries, np.full(rows, 8.0)), matrix.astype(np.float64)


def relaxation(asked: Packing, matrix: Floats) -> float:
    """By the simplex method."""
    one_each = (np.unique(asked.job)[:, None] == asked.job).astype(np.float64)
    limit = np.concatenate([np.ones(len(one_each)), asked.limit])
    return -float(linprog(-asked.value, np.vstack([one_each, matrix]), limit).fun)


def converged(asked: Packing) -> Saddle:
    """Each call takes the mean of its steps; the next one goes on from there."""
    found = Saddle(np.zeros(len(asked.limit)), np.zeros(len(asked.value)))
    for _ in range(10):
        found = approach(asked, found.prices, found.x, 400)
    return found


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("seed", range(8))
def test_the_bound_comes_close_to_the_relaxation_from_above(seed: int, scale: float) -> None:
    asked, matrix = packing(seed)
    asked = replace(asked, value=scale * asked.value)
    best = relaxation(replace(asked, value=asked.value / scale), matrix) * scale
    found = converged(asked)
    assert best * (1 - 1e-9) <= asked.bound(found.prices) <= 1.001 * best
    assert np.all(found.prices >= 0.0)


@pytest.mark.parametrize("seed", range(8))
def test_the_solution_is_nearly_feasible_and_nearly_as_good(seed: int) -> None:
    asked, matrix = packing(seed)
    best = relaxation(asked, matrix)
    found = converged(asked)
    assert np.all(found.x >= 0.0)
    assert np.all(np.bincount(asked.job, found.x) <= 1.01)
    assert np.all(matrix @ found.x <= 1.01 * asked.limit)
    assert abs(asked.value @ found.x - best) <= 0.002 * best


def test_without_columns_or_time_the_prices_stay() -> None:
    asked, _ = packing(0)
    none = asked.select(np.zeros(0, dtype=np.int64), asked.limit)
    start = np.ones(len(asked.limit))
    assert np.array_equal(approach(none, start, np.zeros(0), 10).prices, start)
    assert none.bound(start) == asked.limit.sum()
    x = np.ones(len(asked.value))
    late = approach(asked, start, x, 10, 0.0)
    assert np.array_equal(late.prices, start)
    assert np.array_equal(late.x, x)


def test_a_row_that_nobody_uses_has_no_price() -> None:
    asked, _ = packing(1)
    columns = np.flatnonzero((asked.by_column[:, [0]] @ np.ones(1)) == 0.0)
    part = asked.select(columns, asked.limit)
    found = approach(part, np.ones(len(part.limit)), np.zeros(len(columns)), 5)
    assert found.prices[0] == 0.0
