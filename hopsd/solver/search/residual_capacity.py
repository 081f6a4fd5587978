"""Residual capacity: how much of every row is free, and which columns still fit."""

from __future__ import annotations

import numpy as np

from hopsd.core.placement.program import Program
from hopsd.model.arrays import NONE, Bools, Ints


class ResidualCapacity:
    """What a choice leaves free of a program's rows; cheap to query and update."""

    def __init__(self, program: Program, choice: Ints) -> None:
        demands = program.configurations.demands
        self.free = program.capacity - program.usage(choice)
        self._demands, self._columns = demands, program.configurations
        self._shape, self._share = program.configurations.shape, program.configurations.share
        self._order = np.argsort(demands.row, kind="stable")
        self._item_of = np.repeat(np.arange(len(demands)), np.diff(demands.start))[self._order]
        self._amount = demands.amount[self._order]
        self._first = np.searchsorted(demands.row[self._order], np.arange(len(self.free) + 1))
        # For each item, the number of its rows with too little free; the item fits if that is 0.
        self._short = np.zeros(len(demands), dtype=np.int32)
        if len(demands):
            is_short = (demands.amount > self.free[demands.row]).astype(np.int32)
            self._short = np.add.reduceat(is_short, demands.start[:-1])
        self._room = NONE
        segments = program.configurations.segments
        if segments is not None:
            first = np.unique(np.append(0, segments.item))  # the first block may have none left
            self._kind = np.searchsorted(first, np.arange(len(demands)), side="right") - 1
            self._segment_kind = self._kind[segments.item]
            self._room = np.bincount(self._kind[self._short == 0], minlength=len(first))

    def fits(self, first: int, last: int) -> Bools:
        """Say which of the columns ``first:last`` still fit."""
        fits: Bools = self._columns.shape_values(self._short, slice(first, last)) == 0
        if self._share is not None:
            fits &= self._short[self._share[first:last]] == 0
        return fits

    def has_room(self, segments: slice) -> Bools:
        """Whether a column of each of some segments could still fit, ignoring limits."""
        room: Bools = self._room[self._segment_kind[segments]] > 0
        return room

    def leftover(self, items: Ints) -> Ints:
        """Count the GPUs that each of ``items`` would leave free on the servers it uses."""
        lengths, entry = self._demands.entries(items)
        row = self._demands.row[entry]
        rest = self.free[row] - self._demands.amount[entry]
        rest[row >= len(self._columns.pool)] = 0
        left: Ints = np.add.reduceat(rest, np.cumsum(lengths) - lengths)
        return left

    def take(self, column: int) -> None:
        """Subtract what a column takes."""
        self._change(column, -1)

    def give_back(self, column: int) -> None:
        """Add back what a column takes."""
        self._change(column, 1)

    def _change(self, column: int, sign: int) -> None:
        amounts = self._demands.amounts_of(int(self._shape[column]))
        if self._share is not None:
            amounts += self._demands.amounts_of(int(self._share[column]))
        for row, amount in amounts:
            if not amount:
                continue
            before = int(self.free[row])
            after = before + sign * amount
            self.free[row] = after
            entries = slice(self._first[row], self._first[row + 1])
            touched_amounts = self._amount[entries]
            change = (touched_amounts > after).astype(np.int32) - (touched_amounts > before)
            items = self._item_of[entries]
            short = self._short[items]
            self._short[items] = short + change
            if len(self._room):
                room_changes = (short + change == 0).astype(np.int64) - (short == 0)
                np.add.at(self._room, self._kind[items], room_changes)
