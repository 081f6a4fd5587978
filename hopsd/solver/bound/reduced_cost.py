"""Reduced costs: the profit and loss of columns at given dual prices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hopsd.core.placement.program import SLICE, Program, SegmentValues, segment_values
from hopsd.model.arrays import NONE, Floats, Ints
from hopsd.solver.bound.envelope import best_of_segments


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
        values = segment_values(program)
        if values is not None:
            yield from self._near_in_segments(program, values, absolute, relative)
            return
        for first, last in program.slices():
            own = slice(first, last)
            best = self.job[program.configurations.jobs_between(first, last)]
            loss = best - program.profit(self.item, own)
            yield first + np.flatnonzero(loss <= absolute + relative * program.value[own])

    def _near_in_segments(
        self, program: Program, values: SegmentValues, absolute: float, relative: float
    ) -> Iterator[Ints]:
        """:meth:`near`, computed only for segments whose best column could be near."""
        own = values.segments
        loss = self.job[own.job] - best_of_segments(program, values, self.item)[0]
        able = np.flatnonzero(loss <= absolute + relative * values.most())
        for part in own.in_parts(able, SLICE):
            columns = own.columns_of(part)
            near = self.loss(program, columns) <= absolute + relative * program.value[columns]
            yield columns[near]

    def sample(
        self, program: Program, relative: float, most: int, rng: np.random.Generator
    ) -> Ints:
        """Some of the columns that lose at most ``relative * value``, sorted: of one job with one
        block of shapes the best and about ``most`` others, or all if there are fewer.
        """
        values = segment_values(program)
        if values is None:
            return np.concatenate([NONE, *self.near(program, relative=relative)])
        own = values.segments
        profit, best = best_of_segments(program, values, self.item)
        able = np.flatnonzero(self.job[own.job] - profit <= relative * values.most())
        step = np.maximum(1, np.diff(own.start) // most)
        offset = rng.integers(0, step)
        found = [best[able]]
        for part in own.in_parts(able, SLICE * most):
            columns = own.columns_of(part, step[part], offset[part])
            found.append(columns[self.loss(program, columns) <= relative * program.value[columns]])
        return np.unique(np.concatenate(found))

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
    values = segment_values(program)
    if values is not None:
        found, heads = np.zeros(len(start) - 1), values.segments.of_job()
        profit, _ = best_of_segments(program, values, cost)
        if len(heads):
            found[values.segments.job[heads]] = np.maximum.reduceat(profit, heads)
        return np.maximum(found, 0.0)
    best = np.zeros(len(start) - 1)
    filled = np.flatnonzero(np.diff(start) > 0)
    for first, last in program.slices():
        low, high = np.searchsorted(start[filled], [first, last])
        own = filled[low:high]
        profit = program.profit(cost, slice(first, last))
        best[own] = np.maximum.reduceat(profit, start[own] - first)
    return np.maximum(best, 0.0)
