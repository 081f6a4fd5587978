"""Plain linear programs through HiGHS as scipy ships it, and integer ones through CBC.

For the rival policies. scipy's own integer solver prints debugging lines to standard output
(1.17), and took 4 s where this takes 0.4 s.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hopsd.errors import SolverError
from hopsd.solver.cbc import solve
from hopsd.solver.model import Model

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

CHEAP = 0.005
"""Columns of the first pass: reduced cost up to this share of the best column's cost."""


@dataclass(frozen=True, slots=True)
class Rows:
    """``sum over entries value * x[column] <= limit[row]``; limit (rows,), the rest (entries,)."""

    row: Ints
    column: Ints
    value: Floats
    limit: Floats

    @staticmethod
    def stacked(*parts: Rows) -> Rows:
        """All rows of all parts, in their order."""
        starts = np.cumsum([0, *(len(part.limit) for part in parts[:-1])])
        return Rows(
            np.concatenate([p.row + s for p, s in zip(parts, starts, strict=True)]),
            np.concatenate([p.column for p in parts]),
            np.concatenate([p.value for p in parts]),
            np.concatenate([p.limit for p in parts]),
        )


@dataclass(frozen=True, slots=True)
class Optimum:
    """``prices``: by how much the objective falls per unit of each row's limit, >= 0.

    Empty for an integer program.
    """

    x: Floats
    objective: float
    prices: Floats


def minimise(cost: Floats, rows: Rows, upper: Floats) -> Optimum | None:
    """min cost x within ``rows``, 0 <= x <= upper, both (n,); None: no such x.

    Raises:
        SolverError: unbounded, or the solver gave up.
    """
    optimize, sparse = _scipy()
    answer = optimize.linprog(
        cost,
        A_ub=_matrix(sparse, rows, len(cost)),
        b_ub=rows.limit,
        bounds=np.column_stack((np.zeros(len(cost)), upper)),
        method="highs",
    )
    if answer.status == 2:
        return None
    if answer.status != 0:
        raise SolverError(f"the linear program was not solved: {answer.message}")
    return Optimum(
        np.clip(answer.x, 0.0, upper), float(answer.fun), -np.asarray(answer.ineqlin.marginals)
    )


def minimise_binary(cost: Floats, rows: Rows, gap: float, time_limit_seconds: float) -> Optimum:
    """min cost x within ``rows``, x in {0, 1}; x = 0 must be allowed by the rows.

    Two passes: a column whose reduced cost in the linear relaxation is larger than what a known
    solution lies above the relaxation is in no better one. So a small program over the cheap
    columns gives a solution, and a second one over the columns that may still matter proves it.

    Raises:
        SolverError: no solution within the time limit.
    """
    relaxed = minimise(cost, rows, np.ones(len(cost)))
    if relaxed is None:
        raise SolverError("x = 0 breaks the rows")
    reduced = cost.copy()
    np.add.at(reduced, rows.column, rows.value * relaxed.prices[rows.row])
    best, above = np.zeros(len(cost)), float(-relaxed.objective)
    allowed = gap * abs(relaxed.objective)
    for reach in (CHEAP * abs(float(cost.min(initial=0.0))), None):
        columns = np.flatnonzero(reduced <= (above if reach is None else reach) + 1e-9)
        answer = solve(_model(cost, rows, columns), best[columns], gap, time_limit_seconds)
        if answer.x is not None:
            best = np.zeros(len(cost))
            best[columns] = np.round(answer.x)
            above = float(cost @ best) - relaxed.objective
        if above <= allowed:
            break
    if not _within(best, rows):
        raise SolverError("the integer program was not solved")
    return Optimum(best, float(cost @ best), np.empty(0))


def _model(cost: Floats, rows: Rows, columns: Ints) -> Model:
    """The program over some columns, in order, for CBC; it maximises."""
    place = np.full(len(cost), -1)
    place[columns] = np.arange(len(columns))
    kept = place[rows.column] >= 0
    column, row, value = place[rows.column[kept]], rows.row[kept], rows.value[kept]
    order = np.argsort(column, kind="stable")
    start = np.searchsorted(column[order], np.arange(len(columns) + 1))
    ones = np.ones(len(columns))
    return Model(-cost[columns], start, row[order], value[order], rows.limit, ones)


def _within(x: Floats, rows: Rows) -> bool:
    used = np.zeros(len(rows.limit))
    np.add.at(used, rows.row, rows.value * x[rows.column])
    return bool(np.all(used <= rows.limit + 1e-9))


def _matrix(sparse: Any, rows: Rows, columns: int) -> Any:
    return sparse.csr_array((rows.value, (rows.row, rows.column)), shape=(len(rows.limit), columns))


def _scipy() -> tuple[Any, Any]:
    from scipy import optimize, sparse  # noqa: PLC0415  # slow to import

    return optimize, sparse
