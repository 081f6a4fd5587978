"""Improve a plan: the servers fall into groups, and CBC plans every group anew.

The groups are disjoint, so they are solved side by side, and the cost grows with the cluster, not
faster. Each pass cuts the types into other stretches of neighbours and mixes them differently.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from time import monotonic

import numpy as np

from hopsd.core.program import Program
from hopsd.core.shapes import Floats, Ints
from hopsd.solver.groups import group_servers
from hopsd.solver.model import chosen_columns, model
from hopsd.solver.prices import Prices
from hopsd.solver.watched import Solve

# Measured on 512 to 2,048 GPUs: smaller groups gain less a pass, larger ones take CBC too long.
# Fragments are easier: 16 idle servers of 8 GPUs make a group, or 80 servers with 3.6 of 8 idle.
GROUP_GPUS_TIMES_IDLE = 1024
COLUMNS_PER_GROUP = 800
_NODES_MAX = 60
# CBC's answers are rounded: a better plan is one that is better by more than that.
_BETTER = 1e-9


@dataclass(frozen=True, slots=True)
class Effort:
    """What a pass may spend: relative ``gap`` of a group, and until when (monotonic seconds)."""

    gap: float
    give_up: float


def improve(
    program: Program,
    choice: Ints,
    prices: Prices,
    seed: tuple[int, int],
    solve: Solve,
    effort: Effort,
) -> Ints:
    """One pass over all groups; never worse than ``choice``."""
    profit = (
        program.value
        - program.configurations.shapes.prices(prices.server)[program.configurations.shape]
    )
    group_of = group_servers(program, choice, prices, profit, _group_gpus(program), seed)
    tasks = _tasks(program, choice, prices, profit, group_of)
    with ThreadPoolExecutor(max_workers=max(1, len(os.sched_getaffinity(0)))) as pool:
        answers = list(pool.map(lambda task: _replan(program, task, solve, effort), tasks))
    better = choice.copy()
    for task, columns in zip(tasks, answers, strict=True):
        if columns is not None:
            better[task.jobs] = -1
            better[_job_of(program, columns)] = columns
    return better if program.feasible(better) else choice


def _group_gpus(program: Program) -> int:
    idle = program.capacity[program.capacity > 0]
    return int(GROUP_GPUS_TIMES_IDLE / idle.mean()) if len(idle) else 1


@dataclass(frozen=True, slots=True)
class _Task:
    """Plan ``jobs`` anew with ``columns`` in ``capacity``; ``current`` is what they have."""

    jobs: Ints
    columns: Ints
    current: Ints
    capacity: Ints


def _tasks(
    program: Program, choice: Ints, prices: Prices, profit: Floats, group_of: Ints
) -> list[_Task]:
    columns, shapes = program.configurations, program.configurations.shapes
    of_part = group_of[shapes.server]
    lowest = np.minimum.reduceat(of_part, shapes.start[:-1])
    highest = np.maximum.reduceat(of_part, shapes.start[:-1])
    of_shape = np.where(lowest == highest, lowest, -1)
    groups = int(group_of.max(initial=0)) + 1
    of_job = _group_of_jobs(program, choice, of_shape, profit)
    staying = np.where(of_job >= 0, -1, choice)
    left = program.capacity - program.taken(staying)
    wanted = np.repeat(np.where(of_job >= 0, of_job, -2), np.diff(columns.start))
    inside = np.flatnonzero(of_shape[columns.shape] == wanted)
    # Relative to the value: by the plain difference heavy jobs would bring a column or two, and
    # light ones all of theirs.
    loss = (prices.job[_job_of(program, inside)] - profit[inside]) / program.value[inside]
    order = np.lexsort((loss, wanted[inside]))
    cuts = np.searchsorted(wanted[inside][order], np.arange(groups + 1))
    tasks = []
    for group in range(groups):
        best = inside[order[cuts[group] : cuts[group + 1]][:COLUMNS_PER_GROUP]]
        jobs = np.flatnonzero(of_job == group)
        current = choice[jobs][choice[jobs] >= 0]
        if len(best):
            capacity = np.where(group_of == group, left, 0)
            tasks.append(_Task(jobs, np.union1d(best, current), current, capacity))
    return tasks


def _group_of_jobs(program: Program, choice: Ints, of_shape: Ints, profit: Floats) -> Ints:
    """Where each job competes: its placement's group, or that of its best column; -1 nowhere."""
    columns = program.configurations
    of_job = np.full(columns.jobs, -1, dtype=np.int64)
    placed = choice >= 0
    of_job[placed] = of_shape[columns.shape[choice[placed]]]
    for job in np.flatnonzero(~placed & (np.diff(columns.start) > 0)).tolist():
        own = slice(columns.start[job], columns.start[job + 1])
        group = of_shape[columns.shape[own]]
        of_job[job] = group[np.argmax(np.where(group >= 0, profit[own], -np.inf))]
    return of_job


def _job_of(program: Program, columns: Ints) -> Ints:
    return np.searchsorted(program.configurations.start, columns, side="right") - 1


def _replan(program: Program, task: _Task, solve: Solve, effort: Effort) -> Ints | None:
    """The task's better columns; None where CBC found none or had no time."""
    seconds = effort.give_up - monotonic()
    if seconds <= 0:
        return None
    start = np.isin(task.columns, task.current).astype(np.float64)
    part = model(program, task.columns, task.capacity)
    answer = solve(part, start, effort.gap, seconds, _NODES_MAX)
    columns = chosen_columns(task.columns, answer)
    if columns is None or not _holds(program, task, columns):
        return None
    before, after = (float(program.value[c].sum()) for c in (task.current, columns))
    return columns if after > before * (1 + _BETTER) else None


def _holds(program: Program, task: _Task, columns: Ints) -> bool:
    """Checked apart from the model: one column a job, and no server gives more than it has."""
    jobs = _job_of(program, columns)
    shapes = program.configurations.shape[columns].astype(np.int64)
    taken = program.configurations.shapes.consumption(shapes, len(task.capacity))
    return len(np.unique(jobs)) == len(jobs) and bool(np.all(taken <= task.capacity))
