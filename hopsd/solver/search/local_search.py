"""Local search: CBC replans one group of servers at a time.

The groups are disjoint, so they are solved in parallel, and the cost grows linearly with the
cluster. Each pass divides the types into different stretches of neighbours and mixes these again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from time import monotonic

import numpy as np

from hopsd.core.placement.program import Program
from hopsd.model.arrays import NONE, Bools, Ints
from hopsd.solver.backend.checked_solver import Solve
from hopsd.solver.backend.integer_program import chosen_columns, model
from hopsd.solver.bound.cuts import KINDS
from hopsd.solver.bound.dual_prices import Prices
from hopsd.solver.search.neighbourhoods import group_servers, jitter, wanted_of_all

# Measured on 512 to 2,048 GPUs: smaller groups gain less per pass, larger ones take CBC too long.
# Groups of fragmented servers are easier, and must be larger: few placements suit a job of 16 GPUs.
# Cores and memory are additional knapsacks, with which CBC takes seconds for a larger group.
_GROUP_GPUS, _GROUP_COLUMNS = 192, 1000
_IDLE_OF_GROUP, _MAX_EASIER, _EASE_OF_KNAPSACKS = 8, 4.0, 0.5
_MAX_NODES = 40
# Relative to the largest value: with a large lambda the smallest values are practically zero.
_MIN_VALUE_SHARE = 1e-200
# CBC's answers are rounded: only a larger gain counts as an improvement.
_BETTER = 1e-9


@dataclass(frozen=True, slots=True)
class Effort:
    """The limits of a pass: relative ``gap`` per group, and deadline ``give_up`` (monotonic s).

    ``breadth`` says how many times larger than usual the groups are.
    """

    gap: float
    give_up: float
    breadth: int = 1


def improve(
    program: Program,
    choice: Ints,
    prices: Prices,
    seed: tuple[int, int],
    solve: Solve,
    effort: Effort,
) -> Ints:
    """Make one local search pass over all groups; the result is never worse than ``choice``."""
    ease = _ease(program)
    size = int(group_gpus(program) * effort.breadth)
    group_of = group_servers(program, choice, prices, size, seed)
    rng = np.random.default_rng(seed)
    shape_group = _group_of_shapes(program, group_of)
    job_group = _group_of_jobs(program, choice, shape_group, prices, rng)
    columns_max = int(_GROUP_COLUMNS * ease**0.75 * effort.breadth)
    parts = _Parts(program, choice, group_of, job_group, rng)
    tasks = _tasks(program, choice, prices, parts, shape_group, job_group, columns_max, effort.gap)
    with ThreadPoolExecutor(max_workers=max(1, len(os.sched_getaffinity(0)))) as pool:
        answers = list(pool.map(lambda task: _replan(program, task, solve, effort), tasks))
    better = choice.copy()
    for task, columns in zip(tasks, answers, strict=True):
        if columns is not None:
            better[task.jobs] = -1
            better[program.configurations.jobs_of(columns)] = columns
    return better if program.feasible(better) else choice


def group_gpus(program: Program) -> float:
    """Return the idle GPUs per group at usual breadth; a cluster with no more is one group."""
    return _GROUP_GPUS * _ease(program)


def _ease(program: Program) -> float:
    """Return how many times larger a group may be than one of idle servers with 8 GPUs."""
    if program.configurations.short_of_more_than_gpus:
        return _EASE_OF_KNAPSACKS
    idle = program.idle[program.idle > 0]
    mean = float(idle.mean()) if len(idle) else 1.0
    return float(min(_MAX_EASIER, max(1.0, (_IDLE_OF_GROUP / mean) ** 1.5)))


@dataclass(frozen=True, slots=True)
class _Task:
    """Replan ``jobs``, now on the columns ``current``, with ``columns`` within ``capacity``.

    ``hope`` is the most that can be gained, by the group's own bound.
    """

    jobs: Ints
    columns: Ints
    current: Ints
    capacity: Ints
    hope: float


def _tasks(
    program: Program,
    choice: Ints,
    prices: Prices,
    parts: _Parts,
    shape_group: Ints,
    job_group: Ints,
    columns_max: int,
    worth: float,
) -> list[_Task]:
    columns = program.configurations
    staying_columns = np.where(job_group >= 0, -1, choice)
    items = program.items(staying_columns[staying_columns >= 0])
    slack = prices.rows.limit - prices.rows.usage(items, np.ones(len(items)))
    target_group = np.where(job_group >= 0, job_group, -2)
    inside = np.concatenate([NONE, *_inside(program, shape_group, target_group)])
    group = shape_group[columns.shape[inside]]
    # Columns are ranked by loss relative to value: by the plain loss, heavy jobs would bring a
    # column or two, and light ones all of theirs.
    worth_something = _MIN_VALUE_SHARE * float(program.value.max(initial=1.0))
    value = np.maximum(program.value[inside], worth_something)
    order = np.lexsort((prices.loss(program, inside) / value, group))
    cuts = np.searchsorted(group[order], np.arange(parts.groups + 1))
    tasks = []
    for group in range(parts.groups):
        best = inside[order[cuts[group] : cuts[group + 1]][:columns_max]]
        jobs = np.flatnonzero(job_group == group)
        current = choice[jobs][choice[jobs] >= 0]
        capacity = parts.capacity(group, current)
        current_value = float(program.value[current].sum())
        inside_group = np.tile(parts.rows_of(group), KINDS)
        upper_bound = float(prices.job[jobs].sum() + prices.row[inside_group] @ slack[inside_group])
        if len(best) and upper_bound - current_value > worth * current_value:
            task = _Task(
                jobs, np.union1d(best, current), current, capacity, upper_bound - current_value
            )
            tasks.append(task)
    return sorted(tasks, key=lambda task: -task.hope)


def _inside(program: Program, shape_group: Ints, target_group: Ints) -> Iterator[Ints]:
    """Yield, in parts, the columns whose shape is in the group that their job wants."""
    columns = program.configurations
    for first, last in program.configurations.slices():
        job_group = target_group[columns.jobs_between(first, last)]
        yield first + np.flatnonzero(
            columns.shape_values(shape_group, slice(first, last)) == job_group
        )


class _Parts:
    """The capacity of every group: its servers' rows and its jobs' present use of the limits that
    all groups share. The unused part of each limit goes to one random group.
    """

    def __init__(
        self,
        program: Program,
        choice: Ints,
        group_of: Ints,
        job_group: Ints,
        rng: np.random.Generator,
    ) -> None:
        self.groups = int(group_of.max(initial=0)) + 1
        self._program = program
        self._remaining_capacity = program.capacity - program.usage(
            np.where(job_group >= 0, -1, choice)
        )
        server = program.configurations.server
        self._limit = server < 0
        self._group = np.where(self._limit, -1, group_of[np.maximum(server, 0)])
        if self._limit.any():
            self._residual_capacity = program.capacity - program.usage(choice)
            groups = job_group[job_group >= 0]
            count = int(self._limit.sum())
            self._group[self._limit] = rng.choice(groups, count) if len(groups) else 0

    def rows_of(self, group: int) -> Bools:
        """Say which rows a group may use, (rows,)."""
        rows: Bools = (self._group == group) | self._limit
        return rows

    def capacity(self, group: int, current: Ints) -> Ints:
        """Return what a group, whose jobs are on ``current``, may use of every row, (rows,)."""
        available = np.where(self._group == group, self._remaining_capacity, 0)
        if self._limit.any():
            shared_capacity = (
                self._program.usage(current) + (self._group == group) * self._residual_capacity
            )
            available = np.where(self._limit, shared_capacity, available)
        return available


def _group_of_shapes(program: Program, group_of: Ints) -> Ints:
    """Return each shape's group; -1 if its servers are in no group or in several."""
    shapes = program.configurations.shapes
    part_group = group_of[shapes.server]
    lowest = np.minimum.reduceat(part_group, shapes.start[:-1])
    highest = np.maximum.reduceat(part_group, shapes.start[:-1])
    return np.where(lowest == highest, lowest, -1)


def _group_of_jobs(
    program: Program, choice: Ints, shape_group: Ints, prices: Prices, rng: np.random.Generator
) -> Ints:
    """Return the group in which each job competes, by placement or else best column; -1 if none."""
    columns = program.configurations
    job_group = np.full(columns.jobs, -1, dtype=np.int64)
    is_placed = choice >= 0
    job_group[is_placed] = shape_group[columns.shape[choice[is_placed]]]
    if columns.segments is not None:
        best_columns = wanted_of_all(program, prices, rng, shape_group >= 0)
        jobs = np.flatnonzero(~is_placed & (best_columns >= 0))
        job_group[jobs] = shape_group[columns.shape[best_columns[jobs]]]
        return job_group
    for job in np.flatnonzero(~is_placed & (np.diff(columns.start) > 0)).tolist():
        job_columns = slice(columns.start[job], columns.start[job + 1])
        group = columns.shape_values(shape_group, job_columns)
        jittered_profit = jitter(
            program.profit(prices.item, job_columns), program.value[job_columns], rng
        )
        job_group[job] = group[np.argmax(np.where(group >= 0, jittered_profit, -np.inf))]
    return job_group


def _replan(program: Program, task: _Task, solve: Solve, effort: Effort) -> Ints | None:
    """Return better columns for the task; None if CBC found none or had no time."""
    seconds = effort.give_up - monotonic()
    if seconds <= 0:
        return None
    start = np.isin(task.columns, task.current).astype(np.float64)
    part = model(program, task.columns, task.capacity)
    answer = solve(part, start, effort.gap, seconds, _MAX_NODES * effort.breadth)
    columns = chosen_columns(task.columns, answer)
    if columns is None or not _holds(program, task, columns):
        return None
    value, new_value = (float(program.value[c].sum()) for c in (task.current, columns))
    return columns if new_value > value * (1 + _BETTER) else None


def _holds(program: Program, task: _Task, columns: Ints) -> bool:
    """Check without the model that the answer is feasible: one column per job, all rows kept."""
    jobs = program.configurations.jobs_of(columns)
    return len(np.unique(jobs)) == len(jobs) and bool(
        np.all(program.usage(columns) <= task.capacity)
    )
