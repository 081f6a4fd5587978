"""Clique cuts: of columns that exclude one another pairwise, a plan has at most one.

The rounded rows of :mod:`hopsd.solver.bound.cuts` cover the cliques of one server, and eq. 12 those
of one job. Cliques across both are stronger: if a job takes more than half of server 1 and of
server 2, another job can use none of its columns with more than half of server 1 or 2, wherever the
rest of them is. Shapes of several servers meet in many such cliques; without their cuts, the
relaxation gives several heavy jobs a part of the same few places (Padberg, Math. Programming 5,
1973).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from time import monotonic

import numpy as np

from hopsd.core.placement.program import Program
from hopsd.core.placement.shapes import ramp
from hopsd.model.arrays import NONE, Bools, Floats, Ints
from hopsd.solver.bound.reduced_cost import ColumnCosts

# A clique must be violated by this much; a column is in at most this many new cliques of a round.
_MIN_VIOLATION, _MAX_SHARED = 0.02, 6
# How often columns are tried as the first of a clique, and the most new cliques in a round.
_TRIES, _NEW = 3, 150
_JITTER = 0.3
_MAX_ITEMS = 300
# Limits on memory: how many columns are considered, those with the largest x; from how many of them
# cliques grow at a time; and the bytes of cached rows that say which items exclude which.
_MAX_HELD, _AT_ONCE, _MAX_KEPT = 4_000, 256, 1 << 25


@dataclass(frozen=True, slots=True)
class UnitCut:
    """A cut: the counts of a plan's columns add up to at most 1. Every column that takes one of
    ``items`` (sorted) counts 1, and each of ``columns`` (sorted) counts its ``factor``, 1 if None.

    If the cut is a clique, no two of its columns fit together; ``columns`` are mostly those of one
    or two jobs.
    """

    items: Ints
    columns: Ints
    factor: Floats | None = None

    @property
    def factors(self) -> Floats:
        """What each of ``columns`` counts."""
        return np.ones(len(self.columns)) if self.factor is None else self.factor

    @property
    def key(self) -> tuple[bytes, bytes, bytes]:
        """The same for equal cuts, up to rounding errors."""
        factors = np.round(self.factors, 6)
        return self.items.tobytes(), self.columns.tobytes(), factors.tobytes()


class CliqueFinder:
    """Finds cliques that a solution of the relaxation violates, each only once."""

    def __init__(self, program: Program) -> None:
        self._program, self._shape = program, program.configurations.shape
        self._conflicts = _Conflicts(program)
        self._cache: set[tuple[bytes, bytes]] = set()
        self._rng = np.random.default_rng(0)

    def find(self, columns: Ints, x: Floats, give_up: float = inf) -> list[UnitCut]:
        """Return new cliques whose ``columns`` (sorted) have a sum of ``x`` above 1, worst first.

        Stops at ``give_up`` (monotonic seconds) with those found by then.
        """
        support = np.flatnonzero(x > 1e-6)
        if len(support) > _MAX_HELD:
            support = np.sort(support[np.argsort(-x[support], kind="stable")[:_MAX_HELD]])
        if not len(support):
            return []
        exclude = self._exclusion_matrix(columns[support])
        likely = np.bincount(self._shape[columns], minlength=len(self._conflicts)).astype(float)
        times = np.zeros(len(support), dtype=np.int64)
        cliques: list[UnitCut] = []
        for members in _violated_cliques(exclude, x[support], self._rng, give_up):
            if len(cliques) == _NEW or monotonic() > give_up:
                break
            if times[members].max() >= _MAX_SHARED:
                continue
            clique = self._lift(columns[support[members]], likely)
            key = clique.items.tobytes(), clique.columns.tobytes()
            if key not in self._cache:
                self._cache.add(key)
                cliques.append(clique)
                times[members] += 1
        return cliques

    def _exclusion_matrix(self, columns: Ints) -> Bools:
        """Say which of ``columns`` exclude which, (n, n); none excludes itself."""
        shapes, shape_index = np.unique(self._shape[columns], return_inverse=True)
        job = self._program.configurations.jobs_of(columns)
        shape_conflicts = np.stack(
            [self._conflicts.conflicts_of(s)[shapes] for s in shapes.tolist()]
        )
        exclude: Bools = shape_conflicts[np.ix_(shape_index, shape_index)] | (job[:, None] == job)
        np.fill_diagonal(exclude, val=False)
        return exclude

    def _lift(self, members: Ints, likely: Floats) -> UnitCut:
        """Extend the clique ``members``: first by columns of the jobs that have several in it, then
        by any job's columns with an item that excludes all others, most ``likely`` (items,) first.
        """
        conflicts, start = self._conflicts, self._program.configurations.start
        job, shape = self._program.configurations.jobs_of(members), self._shape[members]
        # Two jobs could take the same item, unless it excludes itself.
        common = conflicts.itself[shape] & (np.bincount(job)[job] == 1)
        items = np.unique(shape[common]).tolist()
        columns_by_job = {
            j: members[(job == j) & ~common] for j in np.unique(job[~common]).tolist()
        }
        for j in columns_by_job:
            other_shapes = [
                self._shape[job_columns]
                for other_job, job_columns in columns_by_job.items()
                if other_job != j
            ]
            compatible = conflicts.with_all(
                {*items, *np.concatenate([shape[:0], *other_shapes]).tolist()}
            )
            job_columns = np.arange(start[j], start[j + 1])
            columns_by_job[j] = job_columns[compatible[self._shape[job_columns]]]
        columns = np.sort(np.concatenate([members[:0], *columns_by_job.values()]))
        compatible = conflicts.itself & conflicts.with_all({*items, *self._shape[columns].tolist()})
        compatible[items] = False
        candidates = np.flatnonzero(compatible & (likely > 0.0))
        candidates = candidates[np.argsort(-likely[candidates], kind="stable")]
        while len(items) < _MAX_ITEMS and len(candidates):
            item, candidates = int(candidates[0]), candidates[1:]
            items.append(item)
            candidates = candidates[conflicts.conflicts_of(item)[candidates]]
        inside = np.zeros(len(conflicts), dtype=np.bool_)
        inside[items] = True
        return UnitCut(np.flatnonzero(inside), columns[~inside[self._shape[columns]]])


def _violated_cliques(
    exclude: Bools, x: Floats, rng: np.random.Generator, give_up: float
) -> Iterator[Ints]:
    """Yield cliques of a graph (n, n) with a weight ``x`` (n,) above 1, grown greedily from every
    vertex, the heaviest vertex first.
    """
    cliques: dict[bytes, tuple[float, Ints]] = {}
    for number in range(_TRIES):
        worth = x if number == 0 else x * (_JITTER + rng.random(len(x)))
        for first in range(0, len(x), _AT_ONCE):
            if monotonic() > give_up:
                break
            inside = _grow_cliques(exclude, worth, np.arange(first, min(first + _AT_ONCE, len(x))))
            for row in inside[inside @ x > 1 + _MIN_VIOLATION]:
                cliques[row.tobytes()] = float(x[row].sum()), np.flatnonzero(row)
    for _, members in sorted(cliques.values(), key=lambda clique: -clique[0]):
        yield members


def _grow_cliques(exclude: Bools, worth: Floats, seeds: Ints) -> Bools:
    """Grow a clique from each of ``seeds``, adding the worthiest vertices first: (seeds, n)."""
    inside, compatible = np.zeros((len(seeds), len(worth)), dtype=np.bool_), exclude[seeds]
    inside[np.arange(len(seeds)), seeds] = True
    while (open_rows := np.flatnonzero(compatible.any(axis=1))).size:
        best = np.argmax(np.where(compatible[open_rows], worth, 0.0), axis=1)
        inside[open_rows, best] = True
        compatible[open_rows] &= exclude[best]
    return inside


class _Conflicts:
    """Pairs of items of a program's demands that do not fit together within some row.

    ``itself`` (items,) marks the items that do not fit twice.
    """

    def __init__(self, program: Program) -> None:
        demands, self._capacity = program.configurations.demands, program.capacity
        self._demands, self._items = demands, len(demands)
        order = np.argsort(demands.row, kind="stable")
        self._item = np.repeat(np.arange(len(demands)), np.diff(demands.start))[order]
        self._amount = demands.amount[order]
        self._first = np.searchsorted(demands.row[order], np.arange(len(self._capacity) + 1))
        self._cache: dict[int, Bools] = {}
        is_over_half = 2 * demands.amount > self._capacity[demands.row]
        self.itself: Bools = np.zeros(0, dtype=np.bool_)
        if len(demands):
            self.itself = np.logical_or.reduceat(is_over_half, demands.start[:-1])

    def __len__(self) -> int:
        return self._items

    def conflicts_of(self, item: int) -> Bools:
        """Mark the items that do not fit beside ``item``, (items,)."""
        conflicts = self._cache.get(item)
        if conflicts is None:
            conflicts = np.zeros(self._items, dtype=np.bool_)
            for row, amount in self._demands.amounts_of(item):
                if amount:
                    entries = slice(self._first[row], self._first[row + 1])
                    is_in_conflict = self._amount[entries] > self._capacity[row] - amount
                    conflicts[self._item[entries][is_in_conflict]] = True
            if (len(self._cache) + 1) * self._items > _MAX_KEPT:
                self._cache.clear()
            self._cache[item] = conflicts
        return conflicts

    def with_all(self, items: Iterable[int]) -> Bools:
        """Mark the items that fit beside none of ``items``, (items,)."""
        common = np.ones(self._items, dtype=np.bool_)
        for item in items:
            common &= self.conflicts_of(item)
        return common


def costs(cuts: Sequence[UnitCut], prices: Floats, items: int) -> tuple[Floats, ColumnCosts]:
    """Return the costs at ``prices`` (cuts,) of every item, (items,), and of single columns."""
    item, columns, column_prices = np.zeros(items), [NONE], [np.zeros(0)]
    for cut, price in zip(cuts, prices.tolist(), strict=True):
        if price > 0.0:
            item[cut.items] += price
            columns.append(cut.columns)
            column_prices.append(price * cut.factors)
    return item, ColumnCosts.build(np.concatenate(columns), np.concatenate(column_prices))


def entries(cuts: Sequence[UnitCut], program: Program, columns: Ints) -> tuple[Ints, Ints, Floats]:
    """Return which of ``columns`` (sorted; by position) are in which cut, and what they count
    there: (entries,) each.
    """
    shape = program.configurations.shape[columns].astype(np.int64)
    by_shape = np.argsort(shape, kind="stable")
    first = np.searchsorted(shape[by_shape], np.arange(len(program.configurations.demands) + 1))
    items, cut_of_item = _concatenate([cut.items for cut in cuts])
    lengths = first[items + 1] - first[items]
    item_holder = by_shape[np.repeat(first[items], lengths) + ramp(lengths)]
    cut_columns, cut_of_column = _concatenate([cut.columns for cut in cuts])
    factors = np.concatenate([np.zeros(0), *(cut.factors for cut in cuts)])
    position = np.searchsorted(columns, cut_columns)
    is_listed = np.append(columns, -1)[position] == cut_columns
    holder = np.concatenate([item_holder, position[is_listed]])
    number = np.concatenate([np.repeat(cut_of_item, lengths), cut_of_column[is_listed]])
    factor = np.concatenate([np.ones(len(item_holder)), factors[is_listed]])
    order = np.argsort(number, kind="stable")
    return holder[order], number[order], factor[order]


def _concatenate(parts: Sequence[Ints]) -> tuple[Ints, Ints]:
    """Concatenate the parts; also return, for each element, the number of its part."""
    numbers = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    return np.concatenate([NONE, *parts]), numbers
