"""Tighten the upper bound by branching on where a job is placed.

Where few large placements suit several heavy jobs, prices let the jobs share them, and the bound is
1 to 2 % above every plan. Once such a job has one of its placements, no other job can use its GPUs,
and new prices prove a lower bound; the highest bound of all cases holds for the program.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace
from itertools import count
from time import monotonic

import numpy as np

from hopsd.core.placement.program import Program
from hopsd.model.arrays import Floats, Ints
from hopsd.solver.bound.cuts import capacity_rows
from hopsd.solver.bound.dual_prices import Prices, descend_over

# Limit of a case's descent in steps which, unlike time, gives the same bound every time.
_STEPS = 60
# A job with more places than this within reach makes too many cases.
_PLACES_MAX = 48
# A step takes as long as if it had so many more columns.
_OVERHEAD = 2_000
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class _Case:
    """A branch: some jobs are placed (``placed_jobs``, as columns), the others are open.

    ``columns``: those of the open jobs that a plan above the target could use. ``dual``: the bound
    that the prices ``row`` (rows,) of the remaining capacity prove; ``bound``: the tightest known,
    at most ``dual``.
    """

    placed_jobs: tuple[int, ...]
    columns: Ints
    row: Floats
    dual: float
    bound: float


def bound_by_branching(
    program: Program, prices: Prices, target: float, give_up: float, effort: int
) -> float:
    """An upper bound on any plan's value, between ``target`` and the bound of ``prices``.

    The bound of ``prices`` where columns are not written out: cases take memory for all of them.
    Stops when the target is proven, after ``effort`` (columns times steps of descent), when no job
    divides the worst case into few, or at ``give_up`` (monotonic seconds).
    """
    if prices.bound <= target or program.configurations.segments is not None:
        return prices.bound
    order = count()
    all_columns = np.arange(len(program.value))
    root = _Case((), all_columns, prices.row, prices.bound, prices.bound)
    open_cases = [(-prices.bound, next(order), root)]
    while open_cases and effort > 0 and monotonic() < give_up:
        split = _divide(program, open_cases[0][2], target)
        if split is None:
            break
        _, _, case = heapq.heappop(open_cases)
        columns, other_columns = split
        effort -= len(case.columns) + _STEPS * len(columns) * (_OVERHEAD + len(other_columns))
        for column in columns.tolist():
            part = _part(program, case, other_columns, column, target, give_up)
            if part.bound > target:
                heapq.heappush(open_cases, (-part.bound, next(order), part))
    highest = open_cases[0][2].bound if open_cases else target
    return min(prices.bound, max(target, highest))


def _divide(program: Program, case: _Case, target: float) -> tuple[Ints, Ints] | None:
    """The columns of the job to place next, and those of the others; None where no job will do.

    A plan above ``target`` uses no column that loses more than ``case.dual - target``.
    """
    distance = (case.dual - target) * (1 + _ROUNDING)
    cost = program.per_column(
        capacity_rows(_residual_program(program, case.placed_jobs)).cost(case.row)
    )
    profit = program.value[case.columns] - cost[case.columns]
    job = np.searchsorted(program.configurations.start, case.columns, side="right") - 1
    best = np.zeros(program.configurations.jobs)
    np.maximum.at(best, job, profit)
    is_near = best[job] - profit <= distance
    places = np.bincount(job[is_near], minlength=len(best))
    # Unplaced, such a job loses its whole profit: every plan above the target places it.
    dividable = (best > distance) & (places > 0) & (places <= _PLACES_MAX)
    if not dividable.any():
        return None
    branch_job = int(np.argmax(np.where(dividable, best, -np.inf)))
    return case.columns[is_near & (job == branch_job)], case.columns[is_near & (job != branch_job)]


def _part(
    program: Program, case: _Case, open_columns: Ints, column: int, target: float, give_up: float
) -> _Case:
    """``case`` with one more job placed; its bound is no higher."""
    fixed_columns = (*case.placed_jobs, column)
    remaining_program = _residual_program(program, fixed_columns)
    if np.any(remaining_program.capacity < 0):
        return replace(case, placed_jobs=fixed_columns, bound=-np.inf)
    columns = open_columns[program.fits(remaining_program.capacity)[open_columns]]
    fixed_value = float(program.value[list(fixed_columns)].sum())
    row, bound = descend_over(
        remaining_program, columns, case.row, target - fixed_value, _STEPS, give_up
    )
    return _Case(
        fixed_columns, columns, row, fixed_value + bound, min(case.bound, fixed_value + bound)
    )


def _residual_program(program: Program, fixed_jobs: tuple[int, ...]) -> Program:
    """The program on the capacity left by columns ``fixed_jobs``; negative if they exceed it."""
    return replace(
        program, capacity=program.capacity - program.usage(np.array(fixed_jobs, np.int64))
    )
