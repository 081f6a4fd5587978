"""HiGHS as an optional alternative to CBC; needs ``highspy``.

HiGHS runs in a child process, which costs 0.1 s per call: in this process it could not be killed
when it is late, and its crash would be ours.
"""

from __future__ import annotations

from time import monotonic

import highspy
import numpy as np

from hopsd.model.arrays import Floats
from hopsd.solver.backend import child
from hopsd.solver.backend.integer_program import Answer, Model

# HiGHS checks the time only between steps, so it gets a lower limit and is killed at ours.
_TOLD_SHARE = 0.85


def solve(
    model: Model, start: Floats | None, gap: float, seconds: float, nodes_max: int | None = None
) -> Answer:
    """Solve a model with HiGHS, with the contract of :func:`hopsd.solver.backend.cbc.solve`."""
    if seconds <= 0:
        return Answer()
    start_time = monotonic()
    with child.Child("hopsd.solver.backend.highs") as highs:
        highs.ask((model, start, gap, start_time + _TOLD_SHARE * seconds, nodes_max))
        record = next(highs.answers(start_time + seconds), b"")
    try:
        bound, *x = np.frombuffer(record)
    except ValueError:  # no answer
        return Answer()
    return Answer(np.array(x) if x else None, float(bound))


def _ask(
    model: Model, start: Floats | None, gap: float, give_up: float, nodes_max: int | None
) -> Answer:
    """Run HiGHS in this process until ``give_up`` (monotonic seconds)."""
    highs = highspy.Highs()  # type: ignore[no-untyped-call]
    highs.setOptionValue("output_flag", False)
    highs.setOptionValue("threads", 1)
    highs.setOptionValue("time_limit", max(0.05, give_up - monotonic()))
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
    feasible = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    x = np.array(highs.getSolution().col_value) if feasible else None
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


if __name__ == "__main__":
    answer = _ask(*child.question())
    values = [] if answer.x is None else answer.x.tolist()
    child.answer(np.array([answer.bound, *values]).tobytes())
