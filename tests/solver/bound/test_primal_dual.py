"""Prices and solutions of packings are close to those of the simplex method."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import linprog

from hopsd.model.arrays import Floats
from hopsd.solver.bound.primal_dual import Packing, Saddle, approach


def packing(seed: int, rows: int = 6, jobs: int = 12) -> tuple[Packing, Floats]:
    """Return jobs with some columns each, and the matrix (rows, columns)."""
    rng = np.random.default_rng(seed)
    job = np.sort(rng.integers(0, jobs, 5 * jobs))
    matrix = rng.integers(0, 4, (rows, len(job))) * (rng.random((rows, len(job))) < 0.5)
    row, column = np.nonzero(matrix)
    entries = column, row, matrix[row, column].astype(np.float64)
    value = rng.uniform(0.5, 2.0, len(job)) * matrix.sum(axis=0)
    return Packing.build(value, job, entries, np.full(rows, 8.0)), matrix.astype(np.float64)


def relaxation(problem: Packing, matrix: Floats) -> float:
    """Solve the relaxation by the simplex method."""
    one_each = (np.unique(problem.job)[:, None] == problem.job).astype(np.float64)
    limit = np.concatenate([np.ones(len(one_each)), problem.limit])
    return -float(linprog(-problem.value, np.vstack([one_each, matrix]), limit).fun)


def converge(problem: Packing) -> Saddle:
    """Call repeatedly: each call averages its steps, and the next one continues from there."""
    saddle = Saddle(np.zeros(len(problem.limit)), np.zeros(len(problem.value)))
    for _ in range(10):
        saddle = approach(problem, saddle.prices, saddle.x, 400)
    return saddle


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("seed", range(8))
def test_the_bound_approaches_the_relaxation_from_above(seed: int, scale: float) -> None:
    problem, matrix = packing(seed)
    problem = replace(problem, value=scale * problem.value)
    best = relaxation(replace(problem, value=problem.value / scale), matrix) * scale
    saddle = converge(problem)
    assert best * (1 - 1e-9) <= problem.bound(saddle.prices) <= 1.001 * best
    assert np.all(saddle.prices >= 0.0)


@pytest.mark.parametrize("seed", range(8))
def test_the_solution_is_nearly_feasible_and_nearly_optimal(seed: int) -> None:
    problem, matrix = packing(seed)
    best = relaxation(problem, matrix)
    saddle = converge(problem)
    assert np.all(saddle.x >= 0.0)
    assert np.all(np.bincount(problem.job, saddle.x) <= 1.01)
    assert np.all(matrix @ saddle.x <= 1.01 * problem.limit)
    assert abs(problem.value @ saddle.x - best) <= 0.002 * best


def test_without_columns_or_time_the_prices_are_unchanged() -> None:
    problem, _ = packing(0)
    empty_part = problem.select(np.zeros(0, dtype=np.int64), problem.limit)
    start = np.ones(len(problem.limit))
    assert np.array_equal(approach(empty_part, start, np.zeros(0), 10).prices, start)
    assert empty_part.bound(start) == problem.limit.sum()
    x = np.ones(len(problem.value))
    late = approach(problem, start, x, 10, 0.0)
    assert np.array_equal(late.prices, start)
    assert np.array_equal(late.x, x)


def test_an_unused_row_has_no_price() -> None:
    problem, _ = packing(1)
    columns = np.flatnonzero((problem.by_column[:, [0]] @ np.ones(1)) == 0.0)
    part = problem.select(columns, problem.limit)
    saddle = approach(part, np.ones(len(part.limit)), np.zeros(len(columns)), 5)
    assert saddle.prices[0] == 0.0
