"""Reduced costs: the profit and loss of columns at given dual prices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hopsd.core.placement.configurations import SLICE
from hopsd.core.placement.program import Program, SegmentValues, segment_values
from hopsd.core.placement.segments import Block
from hopsd.model.arrays import NONE, Floats, Ints, distinct
from hopsd.solver.bound.envelope import best_of_segments


@dataclass(frozen=True, slots=True)
class ColumnCosts:
    """The ``cost`` that each of some ``columns`` (sorted) has besides its items' cost."""

    columns: Ints
    cost: Floats

    @classmethod
    def build(cls, columns: Ints, cost: Floats) -> ColumnCosts:
        """Build the costs of ``columns`` in any order, adding up those of the same column."""
        distinct_columns, index = np.unique(columns, return_inverse=True)
        return cls(
            distinct_columns,
            np.bincount(index.ravel(), cost, len(distinct_columns)).astype(np.float64),
        )

    def interpolate(self, second: ColumnCosts, share: float) -> ColumnCosts:
        """Return the costs at a ``share`` of the way to ``second``."""
        costs = np.concatenate([(1 - share) * self.cost, share * second.cost])
        return self.build(np.concatenate([self.columns, second.columns]), costs)

    def charge(self, profit: Floats, columns: slice | Ints) -> None:
        """Subtract the costs from the ``profit`` of ``columns``, a slice or numbers."""
        if isinstance(columns, slice):
            first, last = np.searchsorted(self.columns, [columns.start, columns.stop])
            profit[self.columns[first:last] - columns.start] -= self.cost[first:last]
        elif len(self.columns):
            position = np.minimum(np.searchsorted(self.columns, columns), len(self.columns) - 1)
            profit -= np.where(self.columns[position] == columns, self.cost[position], 0.0)


FREE = ColumnCosts(NONE, np.zeros(0))
"""The costs if no column costs more than its items."""


@dataclass(frozen=True, slots=True)
class ItemPrices:
    """The cost ``item`` (items,) of every item of a program's demands, and the bound it implies.

    ``column_costs`` is what some columns cost besides; there is none if columns are not written
    out. ``capacity`` is an upper bound on the cost of what any plan takes. ``job`` (jobs,) is the
    profit of each job's best column. ``bound``, on any plan's value, is ``capacity`` plus all of
    ``job``.
    """

    item: Floats
    column_costs: ColumnCosts
    job: Floats
    capacity: float
    bound: float

    def renumber(self, numbers: Ints) -> ItemPrices:
        """Return the same prices where column ``i`` has the number ``numbers[i]``."""
        column_costs = ColumnCosts(numbers[self.column_costs.columns], self.column_costs.cost)
        return ItemPrices(self.item, column_costs, self.job, self.capacity, self.bound)

    def profit(self, program: Program, columns: slice | Ints) -> Floats:
        """Return the value less the cost of ``columns``, a slice or numbers."""
        return _profit(program, self.item, self.column_costs, columns)

    def near(
        self, program: Program, absolute: float = 0.0, relative: float = 0.0
    ) -> Iterator[Ints]:
        """Yield the columns that lose at most ``absolute + relative * value``, sorted, in parts.

        A column's loss is how far its profit is below its job's best.
        """
        values = segment_values(program)
        if values is not None:
            yield from self._near_in_segments(program, values, absolute, relative)
            return
        for first, last in program.configurations.slices():
            job_slice = slice(first, last)
            best = self.job[program.configurations.jobs_between(first, last)]
            loss = best - self.profit(program, job_slice)
            yield first + np.flatnonzero(loss <= absolute + relative * program.value[job_slice])

    def _near_in_segments(
        self, program: Program, values: SegmentValues, absolute: float, relative: float
    ) -> Iterator[Ints]:
        """:meth:`near`, computed only for segments whose best column could be near."""
        segments = values.segments
        loss = self.job[segments.job] - best_of_segments(program, values, self.item)[0]
        candidates = np.flatnonzero(loss <= absolute + relative * values.most())
        for part in segments.in_parts(candidates, SLICE):
            columns = segments.columns_of(part)
            is_near = self.loss(program, columns) <= absolute + relative * program.value[columns]
            yield columns[is_near]

    def sample(
        self, program: Program, relative: float, per_block: int, rng: np.random.Generator
    ) -> Ints:
        """Sample the columns that lose at most ``relative * value``, sorted: for each job and block
        of shapes, the best and about ``per_block`` others, or all if there are fewer.
        """
        values = segment_values(program)
        if values is None:
            return np.concatenate([NONE, *self.near(program, relative=relative)])
        job_segments = values.segments
        profit, best = best_of_segments(program, values, self.item)
        is_near = self.job[job_segments.job] - profit <= relative * values.most()
        columns = [best[is_near]]
        for block in job_segments.blocks:
            segments = block.segments[is_near[block.segments]]
            for begin in range(0, len(segments), max(1, SLICE // per_block)):
                part = segments[begin : begin + max(1, SLICE // per_block)]
                columns.append(self._sample_of_block(values, block, part, relative, per_block, rng))
        return distinct(*columns)

    def _sample_of_block(
        self,
        values: SegmentValues,
        block: Block,
        segments: Ints,
        relative: float,
        per_block: int,
        rng: np.random.Generator,
    ) -> Ints:
        """:meth:`sample` for ``segments`` of a block, ignoring what staying is worth to jobs."""
        all_segments, count = values.segments, len(block.order)
        step = max(1, count // per_block)
        first = rng.integers(0, step, len(segments))
        places = (first[:, None] + np.arange(0, count, step)) % count
        value = all_segments.slowness[
            all_segments.at[segments[0]] : all_segments.at[segments[0]] + count
        ][places]
        value *= values.factor[segments][:, None]
        cost = self.item[block.item : block.item + count][places]
        if all_segments.share is not None:
            cost += self.item[all_segments.share[segments]][:, None]
        loss = self.job[all_segments.job[segments]][:, None] - value + cost
        columns: Ints = (all_segments.start[segments][:, None] + places)[loss <= relative * value]
        return columns

    def loss(self, program: Program, columns: Ints) -> Floats:
        """Return how far the profit of ``columns`` is below their jobs' best, >= 0."""
        best = self.job[program.configurations.jobs_of(columns)]
        loss: Floats = best - self.profit(program, columns)
        return loss


def prices_of_items(
    program: Program, item: Floats, capacity: float, column_costs: ColumnCosts = FREE
) -> ItemPrices:
    """Compute the prices with their bound; see :class:`ItemPrices`."""
    job = best_profits(program, item, column_costs)
    return ItemPrices(item, column_costs, job, capacity, float(job.sum()) + capacity)


def best_profits(program: Program, cost: Floats, column_costs: ColumnCosts = FREE) -> Floats:
    """Return job i's best profit, ``max(0, max_j(value_ij - cost of what j takes))``, as (jobs,).

    ``cost`` (items,) is the cost of every item, ``column_costs`` the extra cost of some columns, if
    all are written out.
    """
    start = program.configurations.start
    values = segment_values(program)
    if values is not None:
        best_profit, heads = np.zeros(len(start) - 1), values.segments.first_by_job()
        profit, _ = best_of_segments(program, values, cost)
        if len(heads):
            best_profit[values.segments.job[heads]] = np.maximum.reduceat(profit, heads)
        return np.maximum(best_profit, 0.0)
    best = np.zeros(len(start) - 1)
    nonempty = np.flatnonzero(np.diff(start) > 0)
    for first, last in program.configurations.slices():
        low, high = np.searchsorted(start[nonempty], [first, last])
        inside = nonempty[low:high]
        profit = _profit(program, cost, column_costs, slice(first, last))
        best[inside] = np.maximum.reduceat(profit, start[inside] - first)
    return np.maximum(best, 0.0)


def _profit(
    program: Program, cost: Floats, column_costs: ColumnCosts, columns: slice | Ints
) -> Floats:
    profit = program.profit(cost, columns)
    column_costs.charge(profit, columns)
    return profit
