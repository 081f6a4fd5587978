"""Large programs: dual prices, a few starting plans, and local search over groups of servers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from itertools import chain, count
from math import inf
from time import monotonic

import numpy as np

from hopsd.core.placement.program import Program
from hopsd.model.arrays import Ints
from hopsd.solver.backend.checked_solver import CheckedSolver
from hopsd.solver.bound.column_groups import ColumnGroups, column_groups
from hopsd.solver.bound.dual_prices import Prices, prices_in_stages
from hopsd.solver.bound.reduced_cost import ItemPrices
from hopsd.solver.prove import NODES, QUICK, Reach, prove
from hopsd.solver.search.cutting_patterns import (
    class_program,
    classes_of,
    ends_could_share,
    equally_idle,
    read_class_plan,
)
from hopsd.solver.search.dive import dive_at_prices
from hopsd.solver.search.greedy import fill_idle, greedy_by_prices, greedy_by_weight, repair
from hopsd.solver.search.local_search import Effort, group_gpus, improve
from hopsd.solver.search.server_assignment import assign_servers
from hopsd.solver.tighten import Tightening, TightenResult, tighten

_MAX_PASSES = 30
# Up to this size CBC solves the program as written in less time than a pass.
_MAX_WHOLE = 4_000
# The share of the requested gap that one group or the class program may leave open.
_PART = 0.3
# Passes end when so many more with the same gain would not meet the gap. Under rules the bound is
# sometimes loose, and passes with little gain are still worth more than a proof.
_LOOKAHEAD_PASSES = 10
# Proof and search in turn: columns for CBC and groups twice as large each, up to the last of these
# turns, whose CBC may branch until the time is over.
_TURNS = 6
# The shares of the time left that a dive or a class plan, and cuts with a dive, may take.
_DIVE, _CUTS = 0.85, 0.8
# A dive from a plan that lacks so many times the requested gap seldom meets it.
_GAP_FACTOR = 3.0
# A column of the start stays where it loses no more than this share of the requested gap.
_STAYS = 0.5
CBC_TOLERANCE = 2e-6
"""Relative tolerance up to which CBC proves optimality."""


@dataclass(frozen=True, slots=True)
class Task:
    """The terms of a solution: relative ``gap``, deadline (monotonic seconds) and ``solver``."""

    gap: float
    give_up: float
    solver: CheckedSolver
    seed: int = 0

    @property
    def late(self) -> bool:
        """Whether the deadline has passed."""
        return monotonic() >= self.give_up


def solve_large(
    program: Program, task: Task, start: Ints | None = None, turns: int | None = None
) -> tuple[Ints, float, ItemPrices]:
    """A choice no worse than ``start``, a proven bound on all choices, and the best prices.

    ``turns``: how often to prove and search on, with ever more effort, where the gap is missed;
    None: until it is met or the time is over.
    """
    value = program.scaled_objective
    parts = column_groups(program)
    ends = _ends(program, parts)
    with ExitStack() as children:
        # It starts and imports while prices are found: in vain if these meet the gap.
        start_early = turns != 0 and ends is _Ends.SHARED and len(program.value) > _MAX_WHOLE
        tightener = children.enter_context(Tightening(program)) if start_early else None
        choice, bound, prices = _at_prices(program, parts, ends, task, start)
        if len(program.value) <= _MAX_WHOLE and not _enough(program, choice, bound, task):
            choice, bound = _prove(program, choice, prices, task)
        tight: ItemPrices = prices
        plan = partial(_start, ends, warm=_is_warm(program, start))
        for step in _steps(program, ends, plan, prices, value(choice), task, turns, tightener):
            if _enough(program, choice, bound, task):
                break
            step_result = step(program, parts, prices, value(choice), task)
            tight = min(tight, step_result.prices, key=lambda candidate: candidate.bound)
            choice, bound = _better(program, choice, step_result.choice), min(bound, tight.bound)
    if not _enough(program, choice, bound, task):
        choice = _passes(program, choice, prices, bound, task)
    return *_close(program, choice, prices, tight, bound, task, turns), tight


class _Ends(Enum):
    """What servers with idle GPUs make of the ends of spread jobs.

    ``APART``: all of a type are equally idle, and no two even shapes could end on one of them, so
    that a class plan is near the best. ``SHARED``: they are equally idle, and two could; a class
    plan has none of that, and before cliques the LP gives many jobs a part of the same servers.
    ``MIXED``: they are not equally idle, and shapes differ from server to server.
    """

    APART = auto()
    SHARED = auto()
    MIXED = auto()


def _ends(program: Program, parts: ColumnGroups) -> _Ends:
    groups = classes_of(program)
    if not equally_idle(groups):
        return _Ends.MIXED
    return _Ends.SHARED if ends_could_share(program, parts, groups) else _Ends.APART


def solve_at_prices(program: Program, task: Task, start: Ints) -> Ints:
    """A choice no worse than ``start``, by prices alone: what :func:`solve_large` begins with."""
    parts = column_groups(program)
    return _at_prices(program, parts, _ends(program, parts), task, start)[0]


def _at_prices(
    program: Program, parts: ColumnGroups, ends: _Ends, task: Task, start: Ints | None
) -> tuple[Ints, float, Prices]:
    """The best greedy choice, a bound on all choices, and the prices that prove it."""
    value = program.scaled_objective
    starts = [greedy_by_weight(program)] + ([] if start is None else [fill_idle(program, start)])
    choice, bound = max(starts, key=value), inf
    for prices in prices_in_stages(
        program, parts, value(choice), task.give_up, early=ends is not _Ends.MIXED
    ):
        bound = min(bound, prices.bound)
        choice = _better(program, choice, _by_prices(program, prices, start, task))
        if _enough(program, choice, bound, task):
            break
    return choice, bound, prices


def _by_prices(program: Program, prices: Prices, start: Ints | None, task: Task) -> Ints:
    """The greedy choice at the prices, which keeps what hardly loses of ``start``."""
    if start is None:
        return greedy_by_prices(program, prices)
    kept_choice, running_jobs = start.copy(), np.flatnonzero(start >= 0)
    columns = start[running_jobs]
    stays = prices.loss(program, columns) <= _STAYS * task.gap * program.value[columns]
    kept_choice[running_jobs[~stays]] = -1
    return greedy_by_prices(program, prices, kept_choice)


_Step = Callable[[Program, ColumnGroups, Prices, float, Task], TightenResult]
"""Looks for prices or a choice that are better than some known, and than a value."""


def _is_warm(program: Program, start: Ints | None) -> bool:
    """Whether the last plan's jobs hold most GPUs."""
    return start is not None and 2 * program.gpus(start) >= program.idle.sum()


def _steps(
    program: Program,
    ends: _Ends,
    start: _Step,
    prices: Prices,
    value: float,
    task: Task,
    turns: int | None,
    tightener: Tightening | None,
) -> tuple[_Step, ...]:
    """A start and the LP's cuts; both at once if ``tightener`` is running already, or where a
    plan worth ``value`` lacks much.

    On equal servers that are short of GPUs only and hold no even shapes, passes over a class plan
    take less time than the cuts (2,048 idle GPUs: 2.7 instead of 6 s).
    """
    if turns == 0:
        return (start,)
    if tightener is not None:
        return (partial(_start_and_cuts, start, tightener),)
    if ends is _Ends.APART and not program.configurations.short_of_more_than_gpus:
        return (start,)
    if value < (1 - _GAP_FACTOR * task.gap) * prices.bound:
        return (partial(_start_and_cuts, start, None),)
    return start, _cuts


def _start_and_cuts(
    start: _Step,
    tightener: Tightening | None,
    program: Program,
    parts: ColumnGroups,
    prices: Prices,
    value: float,
    task: Task,
) -> TightenResult:
    """Both at the same time; only the first rounds of cuts count with which the gap is met, so that
    it does not matter which of them is done first.
    """
    best = TightenResult(prices)
    with tightener or Tightening(program) as child:
        rounds = child.rounds(prices, value, task.gap, _share_of(task, _CUTS))
        for round_result in chain((start(program, parts, prices, value, task),), rounds):
            choices = [c for c in (best.choice, round_result.choice) if c is not None]
            best = TightenResult(
                min(best.prices, round_result.prices, key=lambda candidate: candidate.bound),
                max(choices, key=program.scaled_objective, default=None),
            )
            if best.choice is not None and _enough(program, best.choice, best.prices.bound, task):
                break
    return best


def _cuts(
    program: Program, _: ColumnGroups, prices: Prices, value: float, task: Task
) -> TightenResult:
    return tighten(program, prices, value, task.gap, _share_of(task, _CUTS))


def _better(program: Program, choice: Ints, candidate: Ints | None) -> Ints:
    return choice if candidate is None else max(choice, candidate, key=program.scaled_objective)


def _close(
    program: Program,
    choice: Ints,
    prices: Prices,
    tight: ItemPrices,
    bound: float,
    task: Task,
    turns: int | None,
) -> tuple[Ints, float]:
    """Alternate between proof and wider search, with more effort each turn, until the gap is met.

    Effort is counted, not timed, so that the result does not depend on the machine's speed.
    """
    for turn in count() if turns is None else range(turns):
        if task.solver.has_failed or _enough(program, choice, bound, task):
            break
        doublings = min(turn, _TURNS - 1)
        nodes = NODES << 2 * turn if turn + 1 < _TURNS else None
        choice, proven_bound = _prove(
            program, choice, tight, task, Reach(QUICK.columns << doublings, nodes)
        )
        bound = min(bound, proven_bound)
        choice = _passes(program, choice, prices, bound, task, turn + 1)
    return choice, bound


def _share_of(task: Task, share: float) -> float:
    """When a ``share`` of the time left will be over, in monotonic seconds."""
    current_time = monotonic()
    return current_time + share * (task.give_up - current_time)


def _enough(program: Program, choice: Ints, bound: float, task: Task) -> bool:
    target_met = program.scaled_objective(choice) >= _enough_for(bound, task)
    return target_met or task.late


def _enough_for(bound: float, task: Task) -> float:
    """The value that meets the gap."""
    return (1 - task.gap) * (1 - CBC_TOLERANCE) * bound


def _prove(
    program: Program, choice: Ints, prices: ItemPrices, task: Task, reach: Reach = QUICK
) -> tuple[Ints, float]:
    choice, bound = prove(program, choice, prices, task.gap, task.give_up, task.solver, reach)
    return fill_idle(program, choice), bound


def _passes(
    program: Program, choice: Ints, prices: Prices, bound: float, task: Task, turn: int = 0
) -> Ints:
    """Replan groups until the gap is met, passes gain too little, or the time is over."""
    effort = Effort(_PART * task.gap, task.give_up, 1 << min(turn, _TURNS))
    history = [program.scaled_objective(choice)]
    for number in range(_MAX_PASSES):
        missing = _enough_for(bound, task) - history[-1]
        is_stalled = len(history) > 1 and _LOOKAHEAD_PASSES * (history[-1] - history[-2]) < missing
        if is_stalled or _enough(program, choice, bound, task):
            break
        seed = (task.seed, turn * _MAX_PASSES + number)
        better = improve(program, choice, prices, seed, task.solver, effort)
        choice = fill_idle(program, better)
        history.append(program.scaled_objective(choice))
    return choice


def _start(
    ends: _Ends,
    program: Program,
    parts: ColumnGroups,
    prices: Prices,
    _: float,
    task: Task,
    *,
    warm: bool,
) -> TightenResult:
    """The plan of the class program or of a dive, whichever there is; the better one first. None
    where it would be a class plan but the last plan is there: passes over that take a third less
    time in all, for the same gap (500 jobs on 512 GPUs).
    """
    if warm and ends is _Ends.APART:
        return TightenResult(prices)

    def dive() -> Ints | None:
        return dive_at_prices(program, prices, _share_of(task, _DIVE))

    def classes() -> Ints | None:
        return _class_start(program, parts, prices, task)

    for start in (classes, dive) if ends is _Ends.APART else (dive, classes):
        choice = start()
        if choice is not None:
            return TightenResult(prices, choice)
    return TightenResult(prices)


def _class_start(program: Program, parts: ColumnGroups, prices: Prices, task: Task) -> Ints | None:
    """The class program's plan with servers assigned and idle GPUs filled; None if there is none.

    Also None if a pass takes all servers as one group, where CBC's time is better spent, and if
    servers are short of cores or memory, which patterns ignore.
    """
    columns = program.configurations
    if program.idle.sum() <= group_gpus(program) or columns.short_of_more_than_gpus:
        return None
    classes = class_program(program, parts, prices.rows.per_gpu(prices.row))
    if classes is None:
        return None
    remaining = _share_of(task, _DIVE) - monotonic()
    plan = read_class_plan(classes, task.solver(classes.model, None, _PART * task.gap, remaining))
    choice = None if plan is None else assign_servers(program, parts, plan)
    return None if choice is None else fill_idle(program, repair(program, choice))
