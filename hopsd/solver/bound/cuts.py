"""Capacity rows of the relaxation, with cutting planes that tighten a server's GPU limit.

Two jobs that each need more than half of a server never share it, though the linear relaxation of
eq. 13 gives each a part. Multiplying eq. 13 of a server with ``S`` idle GPUs by ``k / (S + 1)`` and
rounding both sides down keeps every plan and cuts such fractions off (a Chvatal-Gomory cut):
``sum floor(k gpus / (S + 1)) X <= floor(k S / (S + 1))``. For ``k = 2``, at most one job has more
than half; for ``k = 3``, jobs count 1 from about a third of the server on, and 2 from about two
thirds, out of 2. Larger ``k`` lower the bound by less than 0.02 % on servers of 8 GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hopsd.core.placement.program import Program
from hopsd.core.placement.shapes import ramp
from hopsd.model.arrays import Floats, Ints

_MULTIPLIERS = (2, 3)


@dataclass(frozen=True, slots=True)
class CapacityRows:
    """The capacity constraints of the relaxation, as a sparse matrix (CSR).

    Item ``i`` takes ``amount[k]`` of ``row[k]`` for ``k`` in ``start[i]:start[i + 1]``.

    The first rows are the program's; then come, for every cut, as many rows, scaled to the same
    ``limit`` (rows,). Cores and memory are in units of the server's idle GPUs, so that all prices
    are of the same order. ``servers`` is the number of servers.
    """

    start: Ints
    row: Ints
    amount: Floats
    limit: Floats
    servers: int

    def cost(self, prices: Floats) -> Floats:
        """The cost of every item at ``prices`` (rows,): (items,)."""
        if len(self.start) == 1:
            return np.zeros(0)
        return np.add.reduceat(prices[self.row] * self.amount, self.start[:-1])

    def usage(self, items: Ints, shares: Floats) -> Floats:
        """How much of every row is used when each of ``items`` is chosen to its share: (rows,)."""
        lengths = self.start[items + 1] - self.start[items]
        part = np.repeat(self.start[items], lengths) + ramp(lengths)
        weights = self.amount[part] * np.repeat(shares, lengths)
        return np.bincount(self.row[part], weights, len(self.limit)).astype(np.float64)

    def rows_of(self, items: Ints) -> CapacityRows:
        """The rows for ``items`` only, renumbered."""
        lengths = self.start[items + 1] - self.start[items]
        part = np.repeat(self.start[items], lengths) + ramp(lengths)
        start = np.concatenate([[0], np.cumsum(lengths)])
        return CapacityRows(start, self.row[part], self.amount[part], self.limit, self.servers)

    def per_gpu(self, prices: Floats) -> Floats:
        """The price per GPU of every server when all its GPUs are taken: (servers,)."""
        total: Floats = prices.reshape(KINDS, -1).sum(axis=0)[: self.servers]
        return total

    def merge(self, targets: Ints, share: float) -> CapacityRows:
        """Add up rows: row ``r`` of the program counts as row ``targets[r]``. Limits are scaled to
        a ``share`` of the jobs.
        """
        count = int(targets.max(initial=-1)) + 1
        rows = np.concatenate([targets + kind * count for kind in range(KINDS)])
        limit = np.bincount(rows, share * self.limit, KINDS * count).astype(np.float64)
        return CapacityRows(self.start, rows[self.row], self.amount, limit, self.servers)


class SomeItems:
    """Rows for some of their items only, to be evaluated at many prices: where several items take
    the same amount of a row, it is priced once.
    """

    def __init__(self, rows: CapacityRows, items: Ints) -> None:
        item_rows = rows.rows_of(items)
        row, amount = item_rows.row.reshape(-1, KINDS)[:, 0], item_rows.amount.reshape(-1, KINDS)
        key = row
        for amounts in amount.T:
            sizes, size = np.unique(amounts, return_inverse=True)
            key = key * len(sizes) + size.ravel()
        _, first, self._part = np.unique(key, return_index=True, return_inverse=True)
        self._row, self._amount = row[first], np.ascontiguousarray(amount[first].T)
        self._start = item_rows.start // KINDS
        self._rows = len(rows.limit) // KINDS
        self._one_each = len(self._part) == len(items)

    def cost(self, prices: Floats) -> Floats:
        """The cost of every item at ``prices`` (rows,): (items,)."""
        by_kind = prices.reshape(KINDS, -1)
        part_costs = by_kind[0, self._row] * self._amount[0]
        for price, amount in zip(by_kind[1:], self._amount[1:], strict=True):
            part_costs += price[self._row] * amount
        costs: Floats = part_costs[self._part]
        return costs if self._one_each else np.add.reduceat(costs, self._start[:-1])

    def usage(self, items: Ints, shares: Floats) -> Floats:
        """How much of every row is used when each of ``items``, by position, is chosen to its
        share: (rows,).
        """
        part = self._part[items]
        if not self._one_each:
            lengths = self._start[items + 1] - self._start[items]
            part = self._part[np.repeat(self._start[items], lengths) + ramp(lengths)]
            shares = np.repeat(shares, lengths)
        shares_by_part = np.bincount(part, shares, len(self._row))
        by_kind = [
            np.bincount(self._row, shares_by_part * amounts, self._rows) for amounts in self._amount
        ]
        return np.concatenate(by_kind).astype(np.float64)


KINDS = 1 + len(_MULTIPLIERS)
"""The number of rows of the relaxation per row of the program."""


def capacity_rows(program: Program) -> CapacityRows:
    """The capacity rows of a program, with their cuts."""
    capacity, demands = program.capacity, program.configurations.demands
    scale = unit_of_rows(program, capacity)
    row, amount = entries(demands.row, demands.amount, capacity)
    amount *= scale[demands.row][:, None]
    limit = np.tile(capacity * scale, KINDS)
    servers = len(program.configurations.pool)
    return CapacityRows(KINDS * demands.start, row.ravel(), amount.ravel(), limit, servers)


def unit_of_rows(program: Program, capacity: Ints) -> Floats:
    """Scale factor of every row, (rows,): cores and memory in units of a server's GPUs."""
    columns = program.configurations
    scale = np.ones(len(capacity))
    extra = np.flatnonzero(columns.server[len(columns.pool) :] >= 0) + len(columns.pool)
    gpus = np.maximum(1, capacity[columns.server[extra]])
    scale[extra] = gpus / np.maximum(1, capacity[extra])
    return scale


def entries(row: Ints, amount: Ints, capacity: Ints) -> tuple[Ints, Floats]:
    """Rows and amounts, (entries, kinds) each, of taking ``amount`` of ``row``, both (entries,).

    Row ``k * len(capacity) + r`` is the ``k``-th of row ``r``; an amount may be 0.
    """
    row_capacity = capacity[row]
    amounts = [amount.astype(np.float64)]
    for k in _MULTIPLIERS:
        limit = np.maximum(1, k * row_capacity // (row_capacity + 1))
        amounts.append((k * amount // (row_capacity + 1)) * (row_capacity / limit))
    rows = row[:, None] + len(capacity) * np.arange(len(amounts))
    return rows, np.stack(amounts, axis=1)
