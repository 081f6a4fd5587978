"""Linear programs through scipy's HiGHS, for the rival policies."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from hopsd.errors import SolverError
from hopsd.model.arrays import Floats, Ints


@dataclass(frozen=True, slots=True)
class Constraints:
    """Sparse constraints: ``sum over entries value * x[column] <= limit[row]``.

    Shapes: ``limit`` (rows,), the rest (entries,).
    """

    row: Ints
    column: Ints
    value: Floats
    limit: Floats

    @staticmethod
    def stack(*parts: Constraints) -> Constraints:
        """Stack the rows of all parts, in order."""
        starts = np.cumsum([0, *(len(part.limit) for part in parts[:-1])])
        return Constraints(
            np.concatenate([p.row + s for p, s in zip(parts, starts, strict=True)]),
            np.concatenate([p.column for p in parts]),
            np.concatenate([p.value for p in parts]),
            np.concatenate([p.limit for p in parts]),
        )


@dataclass(frozen=True, slots=True)
class Optimum:
    """An optimal solution. ``prices``, >= 0, say how much the objective falls per unit of each
    row's limit.
    """

    x: Floats
    objective: float
    prices: Floats


def minimise(
    cost: Floats, constraints: Constraints, upper: Floats, *, seconds: float = inf
) -> Optimum | None:
    """Minimise ``cost x`` within ``constraints``, 0 <= x <= upper, both (n,); None if infeasible.

    Raises:
        SolverError: the program is unbounded, or the solver gave up, as it does after ``seconds``.
    """
    optimize, sparse = _scipy()
    answer = optimize.linprog(
        cost,
        A_ub=_matrix(sparse, constraints, len(cost)),
        b_ub=constraints.limit,
        bounds=np.column_stack((np.zeros(len(cost)), upper)),
        method="highs",
        options={"time_limit": max(0.0, seconds)} if seconds < inf else {},
    )
    if answer.status == 2:
        return None
    if answer.status != 0:
        raise SolverError(f"the linear program was not solved: {answer.message}")
    return Optimum(
        np.clip(answer.x, 0.0, upper), float(answer.fun), -np.asarray(answer.ineqlin.marginals)
    )


def _matrix(sparse: Any, constraints: Constraints, columns: int) -> Any:
    return sparse.csr_array(
        (constraints.value, (constraints.row, constraints.column)),
        shape=(len(constraints.limit), columns),
    )


def _scipy() -> tuple[Any, Any]:
    from scipy import optimize, sparse  # noqa: PLC0415  # slow to import

    return optimize, sparse
