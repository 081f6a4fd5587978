"""Tighten the bound by cases: what if a job got this place, or that one?

Where few large places suit several heavy jobs, prices let the jobs share them, and the bound lies
1 to 2 % above every plan. Once such a job is put on one of its places, nobody else can use what
that place takes, new prices prove a lower bound, and the highest bound of all cases holds.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace
from itertools import count
from time import monotonic

import numpy as np

from hopsd.core.program import Program
from hopsd.core.shapes import Floats, Ints
from hopsd.solver.prices import Prices, descend_over

# Of a case's descent: a limit that, unlike time, gives the same bound every time.
_STEPS = 60
# More columns than this take longer than the proof is worth.
_COLUMNS_MAX = 1_000_000
# A job with more places than this within reach makes too many cases.
_PLACES_MAX = 48
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class _Case:
    """Jobs that have a place (``placed``, as columns), and what the others can still have.

    ``columns``: of the other jobs, those that a plan above the target could use; ``bound``
    covers the placed and the others.
    """

    placed: tuple[int, ...]
    columns: Ints
    server: Floats
    bound: float


def bound_by_cases(
    program: Program, prices: Prices, target: float, give_up: float, cases_max: int
) -> float:
    """An upper bound on any plan's value, from that of ``prices`` down to ``target``.

    Stops when the target is proven, when ``cases_max`` cases are divided, when no job divides the
    worst one into few, or at ``give_up`` (monotonic seconds).
    """
    if len(program.value) > _COLUMNS_MAX or prices.bound <= target:
        return prices.bound
    order = count()
    whole = np.arange(len(program.value))
    open_cases = [(-prices.bound, next(order), _Case((), whole, prices.server, prices.bound))]
    for _ in range(cases_max):
        case = open_cases[0][2]
        if monotonic() >= give_up:
            break
        divided = _divide(program, case, target, give_up)
        if divided is None:
            break
        heapq.heappop(open_cases)
        for part in divided:
            heapq.heappush(open_cases, (-part.bound, next(order), part))
        if not open_cases:
            return min(prices.bound, target)
    return min(prices.bound, max(target, open_cases[0][2].bound))


def _divide(program: Program, case: _Case, target: float, give_up: float) -> list[_Case] | None:
    """The case's parts that may hold a plan above the target; None where no job divides it.

    A plan above ``target`` uses no column that loses more than ``case.bound - target``.
    """
    value = program.value[case.columns]
    shape = program.configurations.shape[case.columns]
    profit = value - program.configurations.shapes.prices(case.server)[shape]
    job = np.searchsorted(program.configurations.start, case.columns, side="right") - 1
    best = np.zeros(program.configurations.jobs)
    np.maximum.at(best, job, profit)
    near = best[job] - profit <= (case.bound - target) * (1 + _ROUNDING)
    places = np.bincount(job[near], minlength=len(best))
    # Without a place such a job loses its whole profit: it has one in every plan above the target.
    able = (best > (case.bound - target) * (1 + _ROUNDING)) & (places > 0)
    able &= places <= _PLACES_MAX
    if not able.any():
        return None
    divided = int(np.argmax(np.where(able, best, -np.inf)))
    others = case.columns[near & (job != divided)]
    parts = []
    for column in case.columns[near & (job == divided)].tolist():
        part = _part(program, case, others, column, target, give_up)
        if part.bound > target:
            parts.append(part)
    return parts


def _part(
    program: Program, case: _Case, others: Ints, column: int, target: float, give_up: float
) -> _Case:
    """``case`` with one more job placed; its bound is no higher."""
    placed = (*case.placed, column)
    shapes = program.configurations.shapes
    ids = program.configurations.shape[list(placed)].astype(np.int64)
    left = program.capacity - shapes.consumption(ids, len(program.capacity))
    if np.any(left < 0):
        return replace(case, placed=placed, bound=-np.inf)
    columns = others[shapes.fit(left)[program.configurations.shape[others]]]
    fixed = float(program.value[list(placed)].sum())
    rest = replace(program, capacity=left)
    server, bound = descend_over(rest, columns, case.server, target - fixed, _STEPS, give_up)
    return _Case(placed, columns, server, min(case.bound, fixed + bound))
