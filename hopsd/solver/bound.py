"""Upper bounds that hold whatever solver or descent the prices came from."""

from __future__ import annotations

import numpy as np

from hopsd.core.program import Program
from hopsd.core.shapes import Floats
from hopsd.solver.rows import rows_of


def price_bound(program: Program, prices: Floats) -> float:
    """The Lagrangian bound of eq. 11 to 13 for ``prices`` (rows,), negative ones as 0.

    Any plan X keeps every row's limit, so its value is at most
    ``sum_i max(0, max_j(value_ij - cost of j's shape)) + sum_r price_r limit_r``.
    """
    rows, prices = rows_of(program), np.maximum(prices, 0.0)
    return float(prices @ rows.limit + best_profits(program, rows.cost(prices)).sum())


def best_profits(program: Program, cost: Floats) -> Floats:
    """``max(0, max_j(value_ij - cost of j's shape))`` of every job i, (jobs,).

    ``cost``: of every shape, (shapes,).
    """
    columns = program.configurations
    best = np.zeros(columns.jobs)
    filled = np.diff(columns.start) > 0
    if filled.any():
        profit = program.value - cost[columns.shape]
        best[filled] = np.maximum.reduceat(profit, columns.start[:-1][filled])
    return np.maximum(best, 0.0)


def reduced_losses(program: Program, cost: Floats, best: Floats) -> Floats:
    """How much less profit every column makes than its job's ``best`` (jobs,): (columns,), >= 0."""
    columns = program.configurations
    return np.repeat(best, np.diff(columns.start)) - (program.value - cost[columns.shape])
