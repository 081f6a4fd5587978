"""Sia's program: at most one column per job within each GPU type's count, at the least cost.

This is a multiple-choice knapsack with one capacity per type, solved by dynamic programming over
the jobs. A label is a choice for the first jobs; of labels that leave the same capacity of every
type, the cheapest is kept. A label is dropped if, by a bound on what the other jobs add, it leads
to nothing better (:mod:`hops_rivals.state_space`). Before the time limit the clock has no
influence, so equal inputs give equal answers.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from time import monotonic

import numpy as np
from hops_rivals.state_space import Items, RemainingCost, bounds

from hopsd.errors import SolverError
from hopsd.model.arrays import Floats, Ints
from hopsd.solver.backend.linear import Constraints, Optimum, minimise

WIDTHS = (300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000)
"""Labels kept per job, by pass: narrow passes find a solution, the last one proves it."""

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Selection:
    """Sorted ``columns`` and their cost; ``bound`` is a proven lower bound on any choice's cost."""

    columns: Ints
    cost: float
    bound: float


def choose(items: Items, gap: float, time_limit_seconds: float) -> Selection:
    """Find the least-cost choice, to a relative ``gap`` unless time or labels run out.

    Raises:
        SolverError: if a capacity is negative, or the linear relaxation was not solved.
    """
    if not len(items.cost):
        return Selection(np.zeros(0, dtype=np.int64), 0.0, 0.0)
    give_up = monotonic() + time_limit_seconds
    relaxation = _relaxation(items)
    best = np.flatnonzero(relaxation.x >= 1 - _ROUNDING)
    cost, bound = float(items.cost[best].sum()), relaxation.objective
    for number, width in enumerate(WIDTHS):
        if cost - bound <= gap * abs(cost) + _ROUNDING:
            break
        search = _Search.with_limit(cost - gap * abs(cost), items, relaxation, 2**number)
        columns, search_bound = search.run(width, give_up)
        bound = max(bound, search_bound)
        if columns is not None:
            best, cost = columns, float(items.cost[columns].sum())
        if monotonic() > give_up:
            break
    return Selection(np.sort(best), cost, min(bound, cost))


def _relaxation(items: Items) -> Optimum:
    """Solve the linear relaxation; its rows are the jobs, then the types. They imply x <= 1."""
    columns = np.arange(len(items.cost))
    one_per_job = Constraints(items.job, columns, np.ones(len(columns)), np.ones(items.jobs))
    capacity = Constraints(
        items.kind, columns, items.size.astype(np.float64), items.capacity.astype(np.float64)
    )
    optimum = minimise(
        items.cost, Constraints.stack(one_per_job, capacity), np.full(len(columns), np.inf)
    )
    if optimum is None:
        raise SolverError("a capacity is below 0")
    # The LP is optimal only up to a tolerance, so correct the bound to what its prices prove.
    shortfall = np.minimum(_reduced_costs(items, optimum), 0.0).sum()
    return replace(optimum, objective=optimum.objective + float(shortfall))


def _reduced_costs(items: Items, relaxation: Optimum) -> Floats:
    """Compute the reduced cost of each column."""
    job_prices, kind_prices = relaxation.prices[: items.jobs], relaxation.prices[items.jobs :]
    reduced_costs: Floats = (
        items.cost + job_prices[items.job] + kind_prices[items.kind] * items.size
    )
    return reduced_costs


@dataclass(frozen=True, slots=True)
class _Labels:
    """``free_capacity`` (labels, kinds) and ``cost`` (labels,)."""

    free_capacity: Ints
    cost: Floats


@dataclass(slots=True)
class _Search:
    """A search for choices that cost less than ``limit``.

    ``columns``: for each job, in the order of the search, the columns that may be chosen, and -1 if
    the job may be left out. ``dropped_bound``: lower bound on the cost of choices that extend
    labels dropped to save space.
    """

    items: Items
    limit: float
    columns: list[Ints]
    bounds: list[RemainingCost]
    dropped_bound: float = field(default=np.inf)

    @classmethod
    def with_limit(
        cls, limit: float, items: Items, relaxation: Optimum, relaxations: int
    ) -> _Search:
        """Make a search without the columns whose reduced cost alone reaches ``limit``.

        Jobs with the fewest columns come first, so that the number of labels grows late.
        """
        job_prices, kind_prices = relaxation.prices[: items.jobs], relaxation.prices[items.jobs :]
        reduced_costs = _reduced_costs(items, relaxation)
        reach = limit - relaxation.objective
        fits = items.size <= items.capacity[items.kind]
        useful = np.flatnonzero((reduced_costs < reach) & fits)
        useful = useful[np.argsort(items.job[useful], kind="stable")]
        columns_by_job = np.split(
            useful, np.searchsorted(items.job[useful], np.arange(1, items.jobs))
        )
        no_column = np.full(1, -1)
        columns_and_prices = zip(columns_by_job, job_prices, strict=True)
        columns = [
            np.append(no_column, c) if price < reach else c for c, price in columns_and_prices
        ]
        columns.sort(key=len)
        return cls(items, limit, columns, bounds(items, columns, kind_prices, relaxations))

    def run(self, width: int, give_up: float) -> tuple[Ints | None, float]:
        """Return the best choice below the limit, if any was found, and a lower bound on all."""
        labels = _Labels(self.items.capacity[None, :], np.zeros(1))
        trail: list[tuple[Ints, Ints]] = []
        for step in range(len(self.columns)):
            if monotonic() > give_up:
                return None, -np.inf
            labels, parent, column = self._step(labels, step, width)
            trail.append((parent, column))
            if not len(parent):
                return None, min(self.dropped_bound, self.limit)
        cheapest = int(np.argmin(labels.cost))
        bound = min(self.dropped_bound, self.limit, float(labels.cost[cheapest]))
        return (_trace_back(trail, cheapest) if labels.cost[cheapest] < self.limit else None), bound

    def _step(self, labels: _Labels, step: int, width: int) -> tuple[_Labels, Ints, Ints]:
        """Return the labels after one more job, and the parent and the column of each."""
        items, columns = self.items, self.columns[step]
        parents = [
            np.arange(len(labels.cost)) if c < 0
            else np.flatnonzero(labels.free_capacity[:, items.kind[c]] >= items.size[c])
            for c in columns
        ]  # fmt: skip
        parent = np.concatenate([np.zeros(0, dtype=np.int64), *parents])
        taken_column = np.repeat(columns, [len(a) for a in parents])
        free, cost = labels.free_capacity[parent], labels.cost[parent]
        placements = np.flatnonzero(taken_column >= 0)
        column = taken_column[placements]
        free[placements, items.kind[column]] -= items.size[column]
        cost[placements] += items.cost[column]
        lower_bound, survivors = np.full(len(cost), -np.inf), np.arange(len(cost))
        for bound in self.bounds:
            lower_bound[survivors] = np.maximum(
                lower_bound[survivors], bound.after(step, free[survivors], cost[survivors])
            )
            survivors = survivors[lower_bound[survivors] < self.limit]
        survivors = survivors[_cheapest(free[survivors], cost[survivors], items.capacity)]
        if len(survivors) > width:
            nearest = np.argpartition(lower_bound[survivors], width)
            self.dropped_bound = min(
                self.dropped_bound, float(lower_bound[survivors[nearest[width]]])
            )
            survivors = survivors[np.sort(nearest[:width])]
        return _Labels(free[survivors], cost[survivors]), parent[survivors], taken_column[survivors]


def _cheapest(free: Ints, cost: Floats, capacity: Ints) -> Ints:
    """Keep the cheapest of the labels that leave the same capacity."""
    # The key may overflow with many types, so labels are compared; some equal ones may stay.
    key = free @ np.cumprod(np.append(1, capacity[:-1] + 1))
    order = np.lexsort((cost, key))
    is_new = np.any(free[order[1:]] != free[order[:-1]], axis=1)
    first: Ints = order[np.append(np.full(min(1, len(order)), fill_value=True), is_new)]
    return first


def _trace_back(trail: list[tuple[Ints, Ints]], label: int) -> Ints:
    """Collect the columns that led to ``label`` of the last step."""
    columns = []
    for parent, column in reversed(trail):
        columns.append(int(column[label]))
        label = int(parent[label])
    return np.array([c for c in columns if c >= 0], dtype=np.int64)
