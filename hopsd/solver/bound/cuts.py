"""Capacity rows of the relaxation, with cutting planes that tighten a server's GPU limit.

Two jobs that each need more than half of a server never share it, though the linear relaxation of
eq. 13 gives each a part. Eq. 13 of a server with ``S`` idle GPUs, times ``k / (S + 1)`` and rounded
down on both sides, keeps every plan and cuts such parts off (a Chvatal-Gomory cut):
``sum floor(k gpus / (S + 1)) X <= floor(k S / (S + 1))``. For ``k = 2`` one job at most has more
than half; for ``k = 3`` a third counts once and two thirds twice, of 2. Larger ``k`` lower the
bound by less than 0.02 % on servers of 8 GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hopsd.core.placement.program import Program
from hopsd.core.placement.shapes import ramp
from hopsd.model.arrays import Floats, Ints

_ROUNDED = (2, 3)


@dataclass(frozen=True, slots=True)
class CapacityRows:
    """The capacity constraints of the relaxation, as a sparse matrix (CSR).

    Item ``i`` takes ``amount[k]`` of ``row[k]`` for ``k`` in ``start[i]:start[i + 1]``.

    The first rows are the program's; then each has a row for every cut, scaled so that its
    ``limit`` (rows,) is the same. Cores and memory are in units of the server's idle GPUs, so that
    all prices are of the same order. ``servers``: their number.
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

    def used(self, items: Ints, shares: Floats) -> Floats:
        """How much of every row is used when each of ``items`` is chosen to its share: (rows,)."""
        lengths = self.start[items + 1] - self.start[items]
        part = np.repeat(self.start[items], lengths) + ramp(lengths)
        weights = self.amount[part] * np.repeat(shares, lengths)
        return np.bincount(self.row[part], weights, len(self.limit)).astype(np.float64)

    def of(self, items: Ints) -> CapacityRows:
        """The rows for ``items`` only, renumbered."""
        lengths = self.start[items + 1] - self.start[items]
        part = np.repeat(self.start[items], lengths) + ramp(lengths)
        start = np.concatenate([[0], np.cumsum(lengths)])
        return CapacityRows(start, self.row[part], self.amount[part], self.limit, self.servers)

    def per_gpu(self, prices: Floats) -> Floats:
        """The price per GPU of every server when all its GPUs are taken: (servers,)."""
        total: Floats = prices.reshape(KINDS, -1).sum(axis=0)[: self.servers]
        return total


KINDS = 1 + len(_ROUNDED)
"""The number of rows of the relaxation per row of the program."""


def capacity_rows(program: Program) -> CapacityRows:
    """The capacity rows of a program, with their cuts."""
    demands, capacity = program.configurations.demands, program.capacity
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
    own = capacity[row]
    amounts = [amount.astype(np.float64)]
    for k in _ROUNDED:
        limit = np.maximum(1, k * own // (own + 1))
        amounts.append((k * amount // (own + 1)) * (own / limit))
    rows = row[:, None] + len(capacity) * np.arange(len(amounts))
    return rows, np.stack(amounts, axis=1)
