"""Reduced costs: the profit and loss of columns at given dual prices."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hopsd.core.placement.program import Program
from hopsd.model.arrays import Floats


@dataclass(frozen=True, slots=True)
class ItemPrices:
    """What every item of a program's demands costs, ``item`` (items,), and what follows.

    ``capacity``: at least the cost of what any plan takes. ``job`` (jobs,): the profit of its best
    column. ``bound``: on any plan's value, the sum of both.
    """

    item: Floats
    job: Floats
    capacity: float
    bound: float

    def losses(self, program: Program) -> Floats:
        """How far each column's profit is below its job's best, (columns,)."""
        return reduced_losses(program, self.item, self.job)


def prices_of_items(program: Program, item: Floats, capacity: float) -> ItemPrices:
    """Prices with their bound; see :class:`ItemPrices`."""
    job = best_profits(program, item)
    return ItemPrices(item, job, capacity, float(job.sum()) + capacity)


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
