"""Upper bounds that hold whatever solver the prices came from."""

from __future__ import annotations

import numpy as np

from hopsd.core.program import Program
from hopsd.core.shapes import Floats


def price_bound(program: Program, prices: Floats) -> float:
    """The Lagrangian bound of eq. 11 to 13 for non-negative ``prices`` of a server's GPU.

    Any plan X meets the capacities, so its value is at most
    ``sum_i max(0, max_j(value_ij - price of j's GPUs)) + sum_t price_t capacity_t``.
    """
    columns = program.configurations
    prices = np.maximum(prices, 0.0)
    bound = float(prices @ program.capacity)
    filled = np.diff(columns.start) > 0
    if filled.any():
        profit = program.value - columns.shapes.prices(prices)[columns.shape]
        best = np.maximum.reduceat(profit, columns.start[:-1][filled])
        bound += float(np.maximum(best, 0.0).sum())
    return bound
