"""Upper bounds that hold whatever solver or descent the prices came from."""

from __future__ import annotations

import numpy as np

from hopsd.core.program import Program
from hopsd.core.shapes import Floats


def price_bound(program: Program, prices: Floats) -> float:
    """The Lagrangian bound of eq. 11 to 13 for ``prices`` (servers,) of a GPU, negative ones as 0.

    Any plan X meets the capacities, so its value is at most
    ``sum_i max(0, max_j(value_ij - price of j's GPUs)) + sum_t price_t capacity_t``.
    """
    prices = np.maximum(prices, 0.0)
    return float(prices @ program.capacity + best_profits(program, prices).sum())


def best_profits(program: Program, prices: Floats) -> Floats:
    """``max(0, max_j(value_ij - price of j's GPUs))`` of every job i, (jobs,)."""
    columns = program.configurations
    best = np.zeros(columns.jobs)
    filled = np.diff(columns.start) > 0
    if filled.any():
        profit = program.value - columns.shapes.prices(prices)[columns.shape]
        best[filled] = np.maximum.reduceat(profit, columns.start[:-1][filled])
    return np.maximum(best, 0.0)


def reduced_losses(program: Program, prices: Floats, best: Floats) -> Floats:
    """How much less profit every column makes than its job's ``best`` (jobs,): (columns,), >= 0."""
    columns = program.configurations
    profit = program.value - columns.shapes.prices(prices)[columns.shape]
    return np.repeat(best, np.diff(columns.start)) - profit
