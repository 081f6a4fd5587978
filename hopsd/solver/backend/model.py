"""Linear models for the solvers: arrays in, arrays out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hopsd.core.placement.program import Program
from hopsd.core.placement.shapes import ramp
from hopsd.model.arrays import Floats, Ints
from hopsd.solver.bound.cuts import entries

# How far a solver's whole number may be from one, and the sum of a row's factors from its limit.
_WHOLE, _ROUNDING = 1e-4, 1e-9


@dataclass(frozen=True, slots=True)
class Model:
    """max ``objective @ x`` with ``A @ x <= upper`` and whole ``0 <= x <= bound``.

    ``A`` by column: rows ``row[start[j]:start[j + 1]]`` with factors ``factor[...]``.
    """

    objective: Floats
    start: Ints
    row: Ints
    factor: Floats
    upper: Floats
    bound: Floats

    def holds(self, x: Floats) -> bool:
        """Whether ``x``, rounded, is a solution; not if it has to be rounded by much."""
        if x.shape != self.objective.shape or not np.all(np.isfinite(x)):
            return False
        whole = np.round(x)
        used = np.bincount(
            self.row, self.factor * np.repeat(whole, np.diff(self.start)), len(self.upper)
        )
        return bool(
            np.all(np.abs(x - whole) <= _WHOLE)
            and np.all((whole >= 0.0) & (whole <= self.bound))
            and np.all(used <= self.upper * (1 + _ROUNDING) + _ROUNDING)
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """``x`` None: nothing usable came back. ``bound``: no x is worth more, says the solver."""

    x: Floats | None = None
    bound: float = np.inf


def model(program: Program, columns: Ints, capacity: Ints, *, as_written: bool = False) -> Model:
    """Eq. 11 to 13 over some ``columns`` of the program, sorted; the largest value becomes 1.

    A row for every job that one of the columns touches, then those of every server
    (:mod:`hopsd.solver.bound.cuts`): CBC takes half the time with them. ``as_written``: without.
    """
    configurations, shapes = program.configurations, program.configurations.shapes
    job = np.searchsorted(configurations.start, columns, side="right") - 1
    ids = configurations.shape[columns].astype(np.int64)
    lengths = shapes.start[ids + 1] - shapes.start[ids]
    part = np.repeat(shapes.start[ids], lengths) + ramp(lengths)
    server_row, amount = entries(shapes.server[part], shapes.gpus[part], capacity)
    kinds = 1 if as_written else amount.shape[1]
    start = np.concatenate([[0], np.cumsum(kinds * lengths + 1)])
    heads = np.zeros(start[-1], dtype=np.bool_)
    heads[start[:-1]] = True
    row, factor = np.empty(start[-1], dtype=np.int64), np.ones(start[-1])
    jobs = configurations.jobs
    row[heads], row[~heads] = job, jobs + server_row[:, :kinds].ravel()
    factor[~heads] = amount[:, :kinds].ravel()
    used = factor > 0.0
    rows, row = np.unique(row[used], return_inverse=True)
    limits = np.concatenate([np.ones(jobs), np.tile(capacity.astype(np.float64), kinds)])
    start = np.concatenate([[0], np.cumsum(used)])[start]
    value = program.value[columns]
    scale = float(value.max(initial=0.0)) or 1.0
    return Model(value / scale, start, row, factor[used], limits[rows], np.ones(len(columns)))


def chosen_columns(columns: Ints, answer: Answer) -> Ints | None:
    """The columns that the answer's x stands for; None where it is missing."""
    if answer.x is None:
        return None
    chosen: Ints = columns[np.round(answer.x) == 1.0]
    return chosen
