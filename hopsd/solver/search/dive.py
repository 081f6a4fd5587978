"""A plan by diving: linear programs place the most valuable jobs one after another.

If shapes span several servers, prices let many jobs share few places, and the greedy plan takes the
places that heavy jobs need. The LP over the remaining capacity weighs every job that is placed
against all others.
"""

from __future__ import annotations

from time import monotonic

import numpy as np

from hopsd.core.placement.program import Program
from hopsd.model.arrays import NONE, Bools, Floats, Ints
from hopsd.solver.backend.diving import dive
from hopsd.solver.backend.integer_program import model
from hopsd.solver.bound.reduced_cost import ItemPrices
from hopsd.solver.search.greedy import fill_idle

# A dive takes at most this many of each job's columns, those with the least loss, and none that
# loses more than this share of its value; with fewer than the minimum per job, a plan is worse than
# the greedy one.
_PER_JOB, _MIN_PER_JOB, _MAX_LOSS = 60, 8, 0.5
# An LP's solution mostly consists of this many columns of each job, those with the least loss.
_LIKELY = 8
# HiGHS takes 0.3 s for the first LP over this many columns. If servers are short of cores or
# memory, it takes 0.1 s over the smaller number, and rounded rows are omitted above the last one.
MAX_COLUMNS = 30_000
_MAX_KNAPSACK_COLUMNS, _MAX_ROUNDED_COLUMNS = 9_000, 5_000


def dive_at_prices(program: Program, prices: ItemPrices, give_up: float) -> Ints | None:
    """Return a choice with idle GPUs filled; None if none is found by ``give_up`` (monotonic s)."""
    columns, likely = promising_columns(program, prices)
    if not len(columns):
        return None
    knapsacks = program.configurations.short_of_more_than_gpus
    loose = knapsacks and len(columns) > _MAX_ROUNDED_COLUMNS
    relaxed_model = model(program, columns, program.capacity, as_written=loose)
    x = dive(relaxed_model, likely, give_up - monotonic())
    return None if x is None else plan_of(program, columns, x)


def plan_of(program: Program, columns: Ints, x: Floats) -> Ints | None:
    """Choose the ``columns`` with an ``x`` of 1 and fill idle GPUs; None if infeasible."""
    choice = np.full(program.configurations.jobs, -1, dtype=np.int64)
    columns_in_plan = columns[np.round(x) == 1.0]
    choice[program.configurations.jobs_of(columns_in_plan)] = columns_in_plan
    return fill_idle(program, choice) if program.feasible(choice) else None


def promising_columns(program: Program, prices: ItemPrices) -> tuple[Ints, Bools]:
    """Return the columns of a dive's LP, sorted, and which of them its solution probably consists
    of; none if the program is too large.
    """
    empty = NONE, np.zeros(0, dtype=np.bool_)
    knapsacks = program.configurations.short_of_more_than_gpus
    columns_max = _MAX_KNAPSACK_COLUMNS if knapsacks else MAX_COLUMNS
    if np.count_nonzero(prices.job) * _MIN_PER_JOB > columns_max:
        return empty
    useful = np.concatenate([NONE, *prices.near(program, relative=_MAX_LOSS)])
    job = program.configurations.jobs_of(useful)
    per_job = min(_PER_JOB, columns_max // max(1, len(np.unique(job))))
    if per_job < _MIN_PER_JOB:
        return empty
    order = np.lexsort((prices.loss(program, useful), job))
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order)) - np.searchsorted(job, job[order])
    in_reach = rank < per_job
    return useful[in_reach], rank[in_reach] < _LIKELY
