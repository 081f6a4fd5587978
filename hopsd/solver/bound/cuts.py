"""Capacity rows of the relaxation, with cuts that are tighter than a server's GPUs alone.

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
class Rows:
    """Shape ``s`` takes ``amount[k]`` of ``row[k]`` for ``k`` in ``start[s]:start[s + 1]``.

    The first rows are the servers' GPUs; then every server has a row for each rounding, scaled
    so that its ``limit`` (rows,) is the server's GPUs, too.
    """

    start: Ints
    row: Ints
    amount: Floats
    limit: Floats

    def cost(self, prices: Floats) -> Floats:
        """What every shape costs at ``prices`` (rows,): (shapes,)."""
        if len(self.start) == 1:
            return np.zeros(0)
        return np.add.reduceat(prices[self.row] * self.amount, self.start[:-1])

    def used(self, shapes: Ints, shares: Floats) -> Floats:
        """What is used of every row when each of ``shapes`` is chosen to its share: (rows,)."""
        lengths = self.start[shapes + 1] - self.start[shapes]
        part = np.repeat(self.start[shapes], lengths) + ramp(lengths)
        weights = self.amount[part] * np.repeat(shares, lengths)
        return np.bincount(self.row[part], weights, len(self.limit)).astype(np.float64)

    def per_gpu(self, prices: Floats) -> Floats:
        """The price of a GPU of every server when all of them are taken: (servers,)."""
        total: Floats = prices.reshape(1 + len(_ROUNDED), -1).sum(axis=0)
        return total


def capacity_rows(program: Program) -> Rows:
    """The rows of a program's servers for its capacity."""
    shapes = program.configurations.shapes
    row, amount = entries(shapes.server, shapes.gpus, program.capacity)
    kinds = row.shape[1]
    limit = np.tile(program.capacity.astype(np.float64), kinds)
    return Rows(kinds * shapes.start, row.ravel(), amount.ravel(), limit)


def entries(server: Ints, gpus: Ints, capacity: Ints) -> tuple[Ints, Floats]:
    """Which rows ``gpus`` of ``server``, both (parts,), use, and how much: (parts, kinds) each.

    Row ``k * len(capacity) + t`` is the ``k``-th of server ``t``; an amount may be 0.
    """
    own = capacity[server]
    amounts = [gpus.astype(np.float64)]
    for k in _ROUNDED:
        limit = np.maximum(1, k * own // (own + 1))
        amounts.append((k * gpus // (own + 1)) * (own / limit))
    row = server[:, None] + len(capacity) * np.arange(len(amounts))
    return row, np.stack(amounts, axis=1)
