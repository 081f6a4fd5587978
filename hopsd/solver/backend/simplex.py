"""Solve a sequence of similar linear programs, each started from the last one's basis.

``highspy`` (``pip install hops[highs]``) keeps a basis, and its import takes no noticeable time.
scipy's HiGHS takes 0.5 s to import and starts from scratch each time; it is used if ``highspy`` is
not installed.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from importlib.util import find_spec
from time import monotonic
from typing import Any

import numpy as np

from hopsd.errors import SolverError
from hopsd.model.arrays import Floats
from hopsd.solver.backend.linear import Constraints, Optimum, minimise

Labels = Sequence[Hashable]


class Simplex:
    """Minimises linear programs whose columns and rows have labels.

    A column or row starts with the status that its label had in the last basis with it; a new
    column starts at 0, a new row is basic.
    """

    def __init__(self) -> None:
        self._able = find_spec("highspy") is not None
        self._column: dict[Hashable, Any] = {}
        self._row: dict[Hashable, Any] = {}

    def minimise(
        self,
        cost: Floats,
        constraints: Constraints,
        columns: Labels,
        rows: Labels,
        seconds: float,
    ) -> Optimum | None:
        """Minimise ``cost x`` within ``constraints``, 0 <= x, both (n,); None if infeasible.

        No two entries of the constraints may share row and column.

        Raises:
            SolverError: the program is unbounded, or the solver gave up, as after ``seconds``.
        """
        if not self._able:
            return minimise(cost, constraints, np.full(len(cost), np.inf), seconds=seconds)
        import highspy  # noqa: PLC0415  # optional dependency

        lp, status = _lp(highspy, cost, constraints), highspy.HighsBasisStatus
        basis = highspy.HighsBasis()
        basis.col_status = [self._column.get(c, status.kLower) for c in columns]
        basis.row_status = [self._row.get(r, status.kBasic) for r in rows]
        # A basis has exactly as many basic columns and rows as there are rows.
        is_basis = (basis.col_status + basis.row_status).count(status.kBasic) == len(rows)
        give_up = monotonic() + seconds
        highs = _run(highspy, lp, basis if is_basis else None, seconds)
        if highs.getModelStatus() == highspy.HighsModelStatus.kUnknown:
            highs = _run(highspy, lp, None, give_up - monotonic())
        model_status = highs.getModelStatus()
        if model_status == highspy.HighsModelStatus.kInfeasible:
            return None
        if model_status != highspy.HighsModelStatus.kOptimal:
            raise SolverError(f"the linear program was not solved: {model_status}")
        basis, solution = highs.getBasis(), highs.getSolution()
        self._column |= dict(zip(columns, basis.col_status, strict=True))
        self._row |= dict(zip(rows, basis.row_status, strict=True))
        x = np.maximum(0.0, np.array(solution.col_value))
        return Optimum(x, highs.getObjectiveValue(), -np.array(solution.row_dual))


def _run(highspy: Any, lp: Any, basis: Any, seconds: float) -> Any:
    """Solve ``lp``, from the basis if there is one, and return the HiGHS object."""
    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    highs.setOptionValue("threads", 1)
    if seconds < np.inf:
        highs.setOptionValue("time_limit", max(0.0, seconds))
    if highs.passModel(lp) == highspy.HighsStatus.kError:
        raise SolverError("the linear program is malformed")
    if basis is not None:
        highs.setBasis(basis)
    highs.run()
    return highs


def _lp(highspy: Any, cost: Floats, constraints: Constraints) -> Any:
    order = np.argsort(constraints.column, kind="stable")
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = len(cost), len(constraints.limit)
    lp.col_cost_ = cost
    lp.col_lower_, lp.col_upper_ = np.zeros(len(cost)), np.full(len(cost), highspy.kHighsInf)
    lp.row_lower_ = np.full(len(constraints.limit), -highspy.kHighsInf)
    lp.row_upper_ = constraints.limit
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_ = np.searchsorted(constraints.column[order], np.arange(len(cost) + 1))
    lp.a_matrix_.index_ = constraints.row[order]
    lp.a_matrix_.value_ = constraints.value[order]
    return lp
