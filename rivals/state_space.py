"""State space relaxation: lower bounds on the cost of jobs, with GPU types pooled into two sums.

In state space relaxation (Christofides, Mingozzi and Toth 1981), types are added up to two
capacities, and the jobs' columns are chosen by dynamic programming over what is left of both.
Prices from the linear relaxation distinguish the types in a sum, so no bound is below that
relaxation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hopsd.model.arrays import Floats, Ints

MAX_CELLS = 20_000_000
"""Maximum number of cells of all tables together (160 MB)."""


@dataclass(frozen=True, slots=True)
class Items:
    """One column per entry: it takes ``size`` of ``capacity[kind]`` for ``job`` and adds ``cost``.

    ``job`` counts from 0, ``size`` from 1; a job without a column costs 0.
    """

    job: Ints
    kind: Ints
    size: Ints
    cost: Floats
    capacity: Ints

    @property
    def jobs(self) -> int:
        """The number of jobs."""
        return int(self.job.max(initial=-1)) + 1


@dataclass(frozen=True, slots=True)
class RemainingCost:
    """A table of lower bounds on the cost of the remaining jobs.

    ``table[n][a, b]``: the least cost of the jobs from the n-th on, including premiums, if ``a``
    and ``b`` are left of the two sums. ``first`` (kinds,): 1 for types in the first sum.
    ``premium`` (kinds,): a type's price above the lowest one of its sum.
    """

    first: Ints
    premium: Floats
    table: Sequence[Floats]

    def after(self, step: int, free: Ints, cost: Floats) -> Floats:
        """Lower bounds (labels,) on the total cost of choices that have ``free`` left and ``cost``
        after ``step``.

        Premiums are charged for what is used and refunded for the whole capacity.
        """
        a, b = free @ self.first, free @ (1 - self.first)
        lower_bounds: Floats = cost - free @ self.premium + self.table[step + 1][a, b]
        return lower_bounds


def bounds(items: Items, columns: Sequence[Ints], price: Floats, count: int) -> list[RemainingCost]:
    """Build up to ``count`` bounds, as memory allows; ``columns``: each job's, -1 for none."""
    tables: list[RemainingCost] = []
    cells = 0
    for first in _divisions(price)[:count]:
        states = int(items.capacity @ first + 1) * int(items.capacity @ (1 - first) + 1)
        cells += states * (len(columns) + 1)
        if cells <= MAX_CELLS:
            tables.append(_bound(items, columns, price, first))
    return tables or [_bound(items, columns, price, np.ones(len(price), dtype=np.int64))]


def _divisions(price: Floats) -> list[Ints]:
    """List ways to divide the types into two sums: cheap and expensive ones, the largest step in
    price first; then each type against the others.
    """
    order = np.argsort(price, kind="stable")
    rank = np.argsort(order, kind="stable")
    steps = np.argsort(-np.diff(price[order]), kind="stable")
    alone = np.eye(len(price), dtype=np.int64)
    return [(rank <= position).astype(np.int64) for position in steps] + list(alone)


def _bound(items: Items, columns: Sequence[Ints], price: Floats, first: Ints) -> RemainingCost:
    lowest = [price[first == s].min(initial=np.inf) for s in (0, 1)]
    premium = price - np.where(first == 1, lowest[1], lowest[0])
    charged_cost = items.cost + premium[items.kind] * items.size
    last = np.zeros((int(items.capacity @ first) + 1, int(items.capacity @ (1 - first)) + 1))
    table = [last]
    for columns_of_job in reversed(columns):
        table.append(_with_one_more(table[-1], columns_of_job, items, first, charged_cost))
    return RemainingCost(first, premium, table[::-1])


def _with_one_more(
    table: Floats, columns: Ints, items: Items, first: Ints, charged_cost: Floats
) -> Floats:
    """Add a job to the table; of its columns of equal size in a sum, only the cheapest counts."""
    cheapest: dict[tuple[int, int], float] = {}
    for column in columns[columns >= 0].tolist():
        key = int(first[items.kind[column]]), int(items.size[column])
        cheapest[key] = min(cheapest.get(key, np.inf), float(charged_cost[column]))
    best = table.copy() if np.any(columns < 0) else np.full_like(table, np.inf)
    for (in_first, size), cost in cheapest.items():
        target, source = (best, table) if in_first else (best.T, table.T)
        np.minimum(target[size:], source[: len(source) - size] + cost, out=target[size:])
    return best
