"""Linear models for the solvers: arrays in, arrays out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hopsd.core.placement.program import Program
from hopsd.model.arrays import Floats, Ints
from hopsd.solver.bound.cuts import entries, unit_of_rows

# Tolerances of a solver's integers, and of a row's sum relative to its limit.
_WHOLE, _ROUNDING = 1e-4, 1e-9


@dataclass(frozen=True, slots=True)
class Model:
    """An integer program: max ``objective @ x``, ``A @ x <= upper``, integer ``0 <= x <= bound``.

    ``A`` by column: rows ``row[start[j]:start[j + 1]]`` with factors ``factor[...]``.
    """

    objective: Floats
    start: Ints
    row: Ints
    factor: Floats
    upper: Floats
    bound: Floats

    def holds(self, x: Floats) -> bool:
        """Whether ``x``, rounded, is feasible; false if it needs more than slight rounding."""
        if x.shape != self.objective.shape or not np.all(np.isfinite(x)):
            return False
        rounded_x = np.round(x)
        usage = np.bincount(
            self.row, self.factor * np.repeat(rounded_x, np.diff(self.start)), len(self.upper)
        )
        return bool(
            np.all(np.abs(x - rounded_x) <= _WHOLE)
            and np.all((rounded_x >= 0.0) & (rounded_x <= self.bound))
            and np.all(usage <= self.upper * (1 + _ROUNDING) + _ROUNDING)
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """A solver's ``x``, None if it has no usable one, and its upper ``bound`` on any x's value."""

    x: Floats | None = None
    bound: float = np.inf


def model(program: Program, columns: Ints, capacity: Ints, *, as_written: bool = False) -> Model:
    """Build eq. 11 to 13 over some ``columns`` (sorted), scaled so that the largest value is 1.

    There is a row for every job with a column, then the program's rows with their cuts
    (:mod:`hopsd.solver.bound.cuts`), which halve CBC's time; ``as_written`` omits the cuts.
    """
    configurations, demands = program.configurations, program.configurations.demands
    job = np.searchsorted(configurations.start, columns, side="right") - 1
    lengths, part = _entries(program, columns)
    server_row, amount = entries(demands.row[part], demands.amount[part], capacity)
    unit = unit_of_rows(program, capacity)
    amount *= unit[demands.row[part]][:, None]
    kinds = 1 if as_written else amount.shape[1]
    start = np.concatenate([[0], np.cumsum(kinds * lengths + 1)])
    heads = np.zeros(start[-1], dtype=np.bool_)
    heads[start[:-1]] = True
    row, factor = np.empty(start[-1], dtype=np.int64), np.ones(start[-1])
    jobs = configurations.jobs
    row[heads], row[~heads] = job, jobs + server_row[:, :kinds].ravel()
    factor[~heads] = amount[:, :kinds].ravel()
    nonzero = factor > 0.0
    rows, row = np.unique(row[nonzero], return_inverse=True)
    limits = np.concatenate([np.ones(jobs), np.tile(capacity * unit, kinds)])
    start = np.concatenate([[0], np.cumsum(nonzero)])[start]
    value = program.value[columns]
    scale = float(value.max(initial=0.0)) or 1.0
    return Model(value / scale, start, row, factor[nonzero], limits[rows], np.ones(len(columns)))


def _entries(program: Program, columns: Ints) -> tuple[Ints, Ints]:
    """How many entries each of ``columns`` has in the demands, and their positions, in order."""
    configurations, demands = program.configurations, program.configurations.demands
    shapes = configurations.shape[columns].astype(np.int64)
    if configurations.share is None:
        return demands.entries(shapes)
    items = np.stack([shapes, configurations.share[columns]], axis=1)
    lengths, part = demands.entries(items.ravel())
    return lengths.reshape(-1, 2).sum(axis=1), part


def chosen_columns(columns: Ints, answer: Answer) -> Ints | None:
    """Return the columns chosen in the answer; None if it has no solution."""
    if answer.x is None:
        return None
    selection: Ints = columns[np.round(answer.x) == 1.0]
    return selection
