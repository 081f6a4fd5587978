"""Diving: an integer solution from a sequence of linear programs.

Every round solves the linear relaxation, fixes the variables with the largest part of its value at
1, and those that no longer fit at 0. Each round starts from the last one's basis, which needs
``highspy``. HiGHS runs in a child process: in this process it could not be killed, and its crash
would be ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from importlib import import_module
from importlib.util import find_spec
from time import monotonic
from typing import Any

import numpy as np

from hopsd.model.arrays import Bools, Floats, Ints
from hopsd.solver.backend import child
from hopsd.solver.backend.integer_program import Model

# Every round fixes all integral variables and one more for every N that are fractional at first,
# N being smaller above _MANY_COLUMNS: fixing one at a time is best, but takes too many rounds in a
# large program.
_FRACTIONAL_EACH, _FRACTIONAL_EACH_OF_MANY, _MANY_COLUMNS = 160, 80, 15_000
_WHOLE, _POSITIVE, _ROUNDING = 1 - 1e-4, 1e-6, 1e-9
# The child stops by itself a little before it is killed.
_TOLD_SHARE = 0.95


def dive(model: Model, likely: Bools, seconds: float) -> Floats | None:
    """Return a feasible 0-1 x; None without ``highspy``, or if none is found within ``seconds``.

    Every variable's bound must be 1, and no factor may be negative. ``likely`` (n,) marks the
    variables of which the first linear program's solution probably consists: any guess is correct,
    and a good one saves most of that program's time.
    """
    if not able_to_dive() or seconds <= 0:
        return None
    start_time = monotonic()
    with child.Child("hopsd.solver.backend.diving") as process:
        process.ask((model, likely, start_time + _TOLD_SHARE * seconds))
        return _parse_answer(
            model, reduce(lambda _, later: later, process.answers(start_time + seconds), b"")
        )


def _parse_answer(model: Model, record: bytes) -> Floats | None:
    """Decode the x of a record; None if the record is malformed or no variable is fixed."""
    count = len(model.objective)
    if len(record) != (count + 7) // 8:
        return None
    x = np.unpackbits(np.frombuffer(record, dtype=np.uint8), count=count).astype(np.float64)
    return x if x.any() and model.holds(x) else None


def able_to_dive() -> bool:
    """Whether ``highspy`` is installed."""
    return find_spec("highspy") is not None


def fix_in_turn(
    model: Model, likely: Bools, give_up: float, preference: Floats | None = None
) -> Floats:
    """Compute what :func:`dive` returns, but in this process. Stops at ``give_up`` (monotonic
    seconds) with what is fixed by then.
    """
    nothing_fixed = np.zeros(len(model.objective), dtype=np.bool_)
    last: Bools = reduce(
        lambda _, later: later, rounds(model, likely, give_up, preference), nothing_fixed
    )
    return last.astype(np.float64)


def rounds(
    model: Model, likely: Bools, give_up: float, preference: Floats | None = None
) -> Iterator[Bools]:
    """Yield the variables that are fixed at 1 after each linear program, (n,).

    ``preference`` (n,) multiplies their values when the next ones to fix are chosen.
    """
    preferred_value = model.objective if preference is None else preference * model.objective
    relaxation = _Relaxation(model, give_up)
    # The optimum over a few columns is close to the one over all (sifting).
    unlikely = np.flatnonzero(~likely)
    relaxation.bound(unlikely, 0.0)
    relaxation.solve()
    relaxation.bound(unlikely, 1.0)
    capacity, is_fixed = model.upper.copy(), np.zeros(len(model.objective), dtype=np.bool_)
    eligible = np.ones(len(is_fixed), dtype=np.bool_)
    fractional_per_fix = (
        _FRACTIONAL_EACH if len(is_fixed) <= _MANY_COLUMNS else _FRACTIONAL_EACH_OF_MANY
    )
    at_once = 0
    while (x := relaxation.solve()) is not None:
        worth = np.where(eligible & (x > _POSITIVE), preferred_value * x, 0.0)
        fractional = np.count_nonzero((worth > 0.0) & (x < _WHOLE))
        at_once = at_once or 1 + int(fractional) // fractional_per_fix
        columns = _take(model, worth, x, capacity, at_once)
        if not len(columns):
            break
        is_fixed[columns] = True
        yield is_fixed.copy()
        blocked_columns = eligible & ~_fits(model, capacity)
        eligible &= ~blocked_columns
        eligible[columns] = blocked_columns[columns] = False
        relaxation.fix(columns, 1.0)
        relaxation.fix(np.flatnonzero(blocked_columns & ~is_fixed), 0.0)


def _take(model: Model, worth: Floats, x: Floats, capacity: Floats, fractional: int) -> Ints:
    """Take the most valuable variables that fit together, at most ``fractional`` of them
    fractional, and subtract them from ``capacity`` (rows,).
    """
    columns = []
    for j in np.argsort(-worth, kind="stable")[: np.count_nonzero(worth)].tolist():
        if fractional <= 0 and x[j] < _WHOLE:
            break
        entries = slice(model.start[j], model.start[j + 1])
        row, factor = model.row[entries], model.factor[entries]
        if np.all(factor <= capacity[row] + _ROUNDING):
            capacity[row] -= factor
            fractional -= x[j] < _WHOLE
            columns.append(j)
    return np.array(columns, dtype=np.int64)


def _fits(model: Model, capacity: Floats) -> Bools:
    is_short = model.factor > capacity[model.row] + _ROUNDING
    fits: Bools = np.logical_or.reduceat(is_short, model.start[:-1]) == np.False_
    return fits


class _Relaxation:
    """The linear relaxation, with bounds that change."""

    def __init__(self, model: Model, give_up: float) -> None:
        highspy: Any = import_module("highspy")  # optional dependency
        self._give_up, self._optimal = give_up, highspy.HighsModelStatus.kOptimal
        self._highs = highspy.Highs()
        self._highs.setOptionValue("output_flag", False)
        self._highs.setOptionValue("threads", 1)
        self._highs.passModel(_lp(highspy, model))

    def solve(self) -> Floats | None:
        """Return an optimal x; None if time ran out."""
        remaining_seconds = self._give_up - monotonic()
        if remaining_seconds <= 0:
            return None
        if np.isfinite(remaining_seconds):
            self._highs.setOptionValue("time_limit", self._highs.getRunTime() + remaining_seconds)
        self._highs.run()
        if self._highs.getModelStatus() != self._optimal:
            return None
        return np.array(self._highs.getSolution().col_value)

    def fix(self, columns: Ints, value: float) -> None:
        """Fix variables at ``value``."""
        self._set_bounds(columns, value, value)

    def bound(self, columns: Ints, upper: float) -> None:
        """Let variables be between 0 and ``upper``."""
        self._set_bounds(columns, 0.0, upper)

    def _set_bounds(self, columns: Ints, lower: float, upper: float) -> None:
        count = len(columns)
        if count:
            bounds = np.full(count, lower), np.full(count, upper)
            self._highs.changeColsBounds(count, columns.astype(np.int32), *bounds)


def _lp(highspy: Any, model: Model) -> Any:
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = len(model.objective), len(model.upper)
    lp.col_cost_ = -model.objective
    lp.col_lower_, lp.col_upper_ = np.zeros(lp.num_col_), model.bound
    lp.row_lower_ = np.full(lp.num_row_, -highspy.kHighsInf)
    lp.row_upper_ = model.upper
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_, lp.a_matrix_.index_ = model.start, model.row
    lp.a_matrix_.value_ = model.factor
    return lp


if __name__ == "__main__":
    for fixed_mask in rounds(*child.question()):
        child.answer(np.packbits(fixed_mask).tobytes())
