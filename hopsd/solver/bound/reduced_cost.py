"""Reduced costs: the profit and loss of columns at given dual prices."""

from __future__ import annotations

import numpy as np

from hopsd.core.placement.program import Program
from hopsd.model.arrays import Floats


def best_profits(program: Program, cost: Floats) -> Floats:
    """The best profit of every job i, ``max(0, max_j(value_ij - cost of what j takes))``: (jobs,).

    ``cost``: of every item, (items,).
    """
    columns = program.configurations
    best = np.zeros(columns.jobs)
    filled = np.diff(columns.start) > 0
    if filled.any():
        profit = program.value - program.per_column(cost)
        best[filled] = np.maximum.reduceat(profit, columns.start[:-1][filled])
    return np.maximum(best, 0.0)


def reduced_losses(program: Program, cost: Floats, best: Floats) -> Floats:
    """How far each column's profit is below its job's ``best`` (jobs,): (columns,), >= 0."""
    columns = program.configurations
    return np.repeat(best, np.diff(columns.start)) - (program.value - program.per_column(cost))
