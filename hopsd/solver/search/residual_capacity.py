"""Residual capacity: the servers' free GPUs, and the columns that still fit."""

from __future__ import annotations

import numpy as np

from hopsd.core.placement.program import Program
from hopsd.model.arrays import Bools, Ints


class ResidualCapacity:
    """Free GPUs of a program's servers beside a choice; cheap to ask and to change."""

    def __init__(self, program: Program, choice: Ints) -> None:
        shapes = program.configurations.shapes
        self.free = program.capacity - program.taken(choice)
        self._shapes, self._ids = shapes, program.configurations.shape
        self._order = np.argsort(shapes.server, kind="stable")
        self._shape_of = np.repeat(np.arange(len(shapes)), np.diff(shapes.start))[self._order]
        self._gpus = shapes.gpus[self._order]
        self._first = np.searchsorted(shapes.server[self._order], np.arange(len(self.free) + 1))
        # Servers of each shape that have too little left: the shape fits where there is none.
        self._short = np.zeros(len(shapes), dtype=np.int32)
        if len(shapes):
            lacking = (shapes.gpus > self.free[shapes.server]).astype(np.int32)
            self._short = np.add.reduceat(lacking, shapes.start[:-1])

    def fits(self, first: int, last: int) -> Bools:
        """Which of the columns ``first:last`` the free GPUs can hold."""
        fits: Bools = self._short[self._ids[first:last]] == 0
        return fits

    def take(self, column: int) -> None:
        """Use a column's GPUs."""
        self._change(column, -1)

    def give_back(self, column: int) -> None:
        """Free a column's GPUs."""
        self._change(column, 1)

    def _change(self, column: int, sign: int) -> None:
        for server, gpus in self._shapes.parts(int(self._ids[column])):
            before = int(self.free[server])
            after = before + sign * gpus
            self.free[server] = after
            touched = slice(self._first[server], self._first[server + 1])
            needed = self._gpus[touched]
            change = (needed > after).astype(np.int32) - (needed > before)
            self._short[self._shape_of[touched]] += change
