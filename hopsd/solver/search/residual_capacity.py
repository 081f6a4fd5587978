"""Residual capacity: what is free of every row, and which columns still fit."""

from __future__ import annotations

import numpy as np

from hopsd.core.placement.program import Program
from hopsd.model.arrays import Bools, Ints


class ResidualCapacity:
    """What a choice leaves free of a program's rows; cheap to query and update."""

    def __init__(self, program: Program, choice: Ints) -> None:
        uses = program.configurations.uses
        self.free = program.capacity - program.taken(choice)
        self._uses, self._shape = uses, program.configurations.shape
        self._share = program.configurations.share
        self._order = np.argsort(uses.row, kind="stable")
        self._item_of = np.repeat(np.arange(len(uses)), np.diff(uses.start))[self._order]
        self._amount = uses.amount[self._order]
        self._first = np.searchsorted(uses.row[self._order], np.arange(len(self.free) + 1))
        # The number of each item's rows that have too little left: it fits if that is 0.
        self._short = np.zeros(len(uses), dtype=np.int32)
        if len(uses):
            lacking = (uses.amount > self.free[uses.row]).astype(np.int32)
            self._short = np.add.reduceat(lacking, uses.start[:-1])

    def fits(self, first: int, last: int) -> Bools:
        """Which of the columns ``first:last`` still fit."""
        fits: Bools = self._short[self._shape[first:last]] == 0
        if self._share is not None:
            fits &= self._short[self._share[first:last]] == 0
        return fits

    def take(self, column: int) -> None:
        """Subtract what a column takes."""
        self._change(column, -1)

    def give_back(self, column: int) -> None:
        """Add back what a column takes."""
        self._change(column, 1)

    def _change(self, column: int, sign: int) -> None:
        taken = self._uses.of(int(self._shape[column]))
        if self._share is not None:
            taken += self._uses.of(int(self._share[column]))
        for row, amount in taken:
            if not amount:
                continue
            before = int(self.free[row])
            after = before + sign * amount
            self.free[row] = after
            touched = slice(self._first[row], self._first[row + 1])
            needed = self._amount[touched]
            change = (needed > after).astype(np.int32) - (needed > before)
            self._short[self._item_of[touched]] += change
