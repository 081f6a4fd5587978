"""HiGHS in the same role as CBC, in this process: an extra, where ``highspy`` is installed."""

from __future__ import annotations

import highspy
import numpy as np

from hopsd.core.shapes import Floats
from hopsd.solver.model import Answer, Model


def solve(
    model: Model, start: Floats | None, gap: float, seconds: float, nodes_max: int | None = None
) -> Answer:
    """As :func:`hopsd.solver.cbc.solve`; the limit is HiGHS's own, it cannot be killed."""
    if seconds <= 0:
        return Answer()
    highs = highspy.Highs()  # type: ignore[no-untyped-call]
    highs.setOptionValue("output_flag", False)
    highs.setOptionValue("threads", 1)
    highs.setOptionValue("time_limit", float(seconds))
    highs.setOptionValue("mip_rel_gap", float(gap))
    if nodes_max is not None:
        highs.setOptionValue("mip_max_nodes", int(nodes_max))
    highs.passModel(_lp(model))
    if start is not None:
        solution = highspy.HighsSolution()
        solution.col_value = start.tolist()
        highs.setSolution(solution)
    highs.run()
    info = highs.getInfo()
    found = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    x = np.array(highs.getSolution().col_value) if found else None
    return Answer(x, -float(info.mip_dual_bound))


def _lp(model: Model) -> highspy.HighsLp:
    columns, rows = len(model.objective), len(model.upper)
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = columns, rows
    lp.col_cost_ = -model.objective
    lp.col_lower_, lp.col_upper_ = np.zeros(columns), model.bound
    lp.row_lower_, lp.row_upper_ = np.full(rows, -highspy.kHighsInf), model.upper
    lp.integrality_ = [highspy.HighsVarType.kInteger] * columns
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_ = model.start
    lp.a_matrix_.index_ = model.row
    lp.a_matrix_.value_ = model.factor
    return lp
