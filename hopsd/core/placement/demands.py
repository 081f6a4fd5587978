"""What placements take: GPUs, cores and memory of servers, and parts of the site's limits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from hopsd.core.placement.shapes import ramp
from hopsd.model.arrays import Bools, Ints


@dataclass(frozen=True, slots=True)
class Demands:
    """A sparse matrix (CSR): how much of each of a program's rows every item takes.

    Item ``i`` takes ``amount[k]`` of ``row[k]`` for ``k`` in ``start[i]:start[i + 1]``. Every item
    has at least one entry; an amount may be 0.
    """

    start: Ints
    row: Ints
    amount: Ints

    def __len__(self) -> int:
        return len(self.start) - 1

    @staticmethod
    def concatenate(parts: Iterable[Demands]) -> Demands:
        """Concatenate the items of all parts."""
        parts = list(parts)
        empty = np.zeros(0, dtype=np.int64)
        lengths = np.concatenate([empty, *(np.diff(part.start) for part in parts)])
        return Demands(
            np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            np.concatenate([empty, *(part.row for part in parts)]),
            np.concatenate([empty, *(part.amount for part in parts)]),
        )

    def entries(self, items: Ints) -> tuple[Ints, Ints]:
        """Return the number of entries of each of ``items``, and their positions, item by item."""
        lengths = self.start[items + 1] - self.start[items]
        return lengths, np.repeat(self.start[items], lengths) + ramp(lengths)

    def select(self, items: Ints) -> Demands:
        """Return the demands of ``items`` alone, in this order."""
        lengths, entry = self.entries(items)
        start = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        return Demands(start, self.row[entry], self.amount[entry])

    def amounts_of(self, item: int) -> list[tuple[int, int]]:
        """Return the ``(row, amount)`` pairs of one item."""
        part = slice(self.start[item], self.start[item + 1])
        return list(zip(self.row[part].tolist(), self.amount[part].tolist(), strict=True))

    def fit(self, capacity: Ints) -> Bools:
        """Return which items fit into ``capacity`` (rows,)."""
        if not len(self):
            return np.zeros(0, dtype=np.bool_)
        return np.logical_and.reduceat(self.amount <= capacity[self.row], self.start[:-1])

    def total(self, items: Ints, rows: int) -> Ints:
        """Return how much ``items`` take of each row; an item counts as often as it occurs."""
        _, part = self.entries(items)
        amounts = np.zeros(rows, dtype=np.int64)
        np.add.at(amounts, self.row[part], self.amount[part])
        return amounts
