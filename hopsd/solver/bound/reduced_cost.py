"""Reduced costs: the profit and loss of columns at given dual prices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hopsd.core.placement.program import Program
from hopsd.model.arrays import Floats, Ints


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

    def near(
        self, program: Program, absolute: float = 0.0, relative: float = 0.0
    ) -> Iterator[Ints]:
        """The columns that lose at most ``absolute + relative * value``, sorted, in parts.

        A column's loss: how far its profit is below its job's best.
        """
        for first, last in program.slices():
            own = slice(first, last)
            best = self.job[program.configurations.jobs_between(first, last)]
            loss = best - program.profit(self.item, own)
            yield first + np.flatnonzero(loss <= absolute + relative * program.value[own])

    def loss(self, program: Program, columns: Ints) -> Floats:
        """How far the profit of some columns is below their jobs' best, >= 0."""
        best = self.job[program.configurations.jobs_of(columns)]
        loss: Floats = best - program.profit(self.item, columns)
        return loss


def prices_of_items(program: Program, item: Floats, capacity: float) -> ItemPrices:
    """Prices with their bound; see :class:`ItemPrices`."""
    job = best_profits(program, item)
    return ItemPrices(item, job, capacity, float(job.sum()) + capacity)


def best_profits(program: Program, cost: Floats) -> Floats:
    """The best profit of every job i, ``max(0, max_j(value_ij - cost of what j takes))``: (jobs,).

    ``cost``: of every item, (items,).
    """
    start = program.configurations.start
    best = np.zeros(len(start) - 1)
    filled = np.flatnonzero(np.diff(start) > 0)
    for first, last in program.slices():
        low, high = np.searchsorted(start[filled], [first, last])
        own = filled[low:high]
        profit = program.profit(cost, slice(first, last))
        best[own] = np.maximum.reduceat(profit, start[own] - first)
    return np.maximum(best, 0.0)
