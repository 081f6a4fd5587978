"""Large programs: dual prices, a few starting plans, and local search over groups of servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import partial
from itertools import chain, count, zip_longest
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
# Passes end when this many more with the same gain would not meet the gap. Under rules the bound is
# sometimes loose, and passes with little gain are still worth more than a proof.
_LOOKAHEAD_PASSES = 10
# Proof and search take turns, each turn with twice as many columns for CBC and groups twice as
# large; in the last of these turns CBC may branch until time runs out.
_TURNS = 6
# The same for passes beside cuts: groups beyond these turns take CBC longer than the cuts.
_TURNS_MEANWHILE = 2
# The shares of the remaining time that a dive or a class plan, and cuts with a dive, may take.
_DIVE, _CUTS = 0.85, 0.8
# A dive from a plan that lacks more than this many times the requested gap seldom meets it.
_GAP_FACTOR = 3.0
# A column of the start stays if it loses no more than this share of the requested gap.
_STAYS = 0.5
CBC_TOLERANCE = 2e-6
"""Relative tolerance up to which CBC proves optimality."""


@dataclass(frozen=True, slots=True)
class Task:
    """The terms of a solution: relative ``gap``, deadline ``give_up`` (monotonic s), ``solver``.

    A choice worth ``enough`` meets the gap by a bound that the caller already knows.
    """

    gap: float
    give_up: float
    solver: CheckedSolver
    seed: int = 0
    enough: float = inf

    @property
    def late(self) -> bool:
        """Whether the deadline has passed."""
        return monotonic() >= self.give_up


def solve_large(
    program: Program, task: Task, start: Ints | None = None, turns: int | None = None
) -> tuple[Ints, float, ItemPrices]:
    """Return a choice no worse than ``start``, a proven bound on all choices, and the best prices.

    ``turns`` is how often to prove and search again, with growing effort, if the gap is missed;
    None goes on until it is met or time runs out.
    """
    value = program.scaled_objective
    parts = column_groups(program)
    ends = _ends(program, parts)
    with ExitStack() as children:
        # The child starts and imports while prices are found; it is not needed if these meet the
        # gap.
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
            step_result = step(program, parts, prices, choice, task)
            tight = min(tight, step_result.prices, key=lambda candidate: candidate.bound)
            choice, bound = _better(program, choice, step_result.choice), min(bound, tight.bound)
    if not _enough(program, choice, bound, task):
        choice = _passes(program, choice, prices, bound, task)
    return *_close(program, choice, prices, tight, bound, task, turns), tight


class _Ends(Enum):
    """Whether the ends of spread jobs can share servers with idle GPUs.

    ``APART``: all servers of a type are equally idle, and no two even shapes could end on one of
    them, so a class plan is near the best. ``SHARED``: they are equally idle and two shapes could;
    a class plan never does that, and without cliques the LP gives many jobs a part of the same
    servers. ``MIXED``: they are not equally idle, and shapes differ from server to server.
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
    """Return a choice no worse than ``start`` by prices alone, as :func:`solve_large` begins."""
    parts = column_groups(program)
    return _at_prices(program, parts, _ends(program, parts), task, start)[0]


def _at_prices(
    program: Program, parts: ColumnGroups, ends: _Ends, task: Task, start: Ints | None
) -> tuple[Ints, float, Prices]:
    """Return the best greedy choice, a bound on all choices, and the last prices."""
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
    """Choose greedily at the prices, keeping the columns of ``start`` that lose little."""
    if start is None:
        return greedy_by_prices(program, prices)
    kept_choice, running_jobs = start.copy(), np.flatnonzero(start >= 0)
    columns = start[running_jobs]
    stays = prices.loss(program, columns) <= _STAYS * task.gap * program.value[columns]
    kept_choice[running_jobs[~stays]] = -1
    return greedy_by_prices(program, prices, kept_choice)


_Step = Callable[[Program, ColumnGroups, Prices, Ints, Task], TightenResult]
"""Looks for better prices or a better choice than the given ones."""


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
    """Return the steps: a start and the LP's cuts, both at once if ``tightener`` already runs or if
    a plan worth ``value`` lacks much.

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
    choice: Ints,
    task: Task,
) -> TightenResult:
    """Run both at the same time. Only the rounds of cuts up to the first that meets the gap count,
    so the result does not depend on which of the two is faster.
    """
    value, due = program.scaled_objective(choice), _share_of(task, _CUTS)
    best: ItemPrices = prices
    with tightener or Tightening(program) as child:
        rounds = child.rounds(prices, value, task.gap, due, task.enough)
        first = start(program, parts, prices, choice, task)
        passes = _meanwhile(program, lambda: choice, prices, replace(task, give_up=due))
        for result in chain((first,), chain.from_iterable(zip_longest(passes, rounds))):
            if result is not None:
                choice = _better(program, choice, result.choice)
                best = min(best, result.prices, key=lambda candidate: candidate.bound)
                if _enough(program, choice, best.bound, task):
                    break
    return TightenResult(best, choice)


def _cuts(
    program: Program, _: ColumnGroups, prices: Prices, choice: Ints, task: Task
) -> TightenResult:
    value, due = program.scaled_objective(choice), _share_of(task, _CUTS)
    return tighten(program, prices, value, task.gap, due, task.enough)


def _meanwhile(
    program: Program, current: Callable[[], Ints], prices: Prices, task: Task
) -> Iterator[TightenResult]:
    """Make passes over the ``current`` choice while a child cuts, with groups twice as large once a
    pass gains nothing. Makes none if the choice is more than the gap below what is enough: there,
    cuts are what is missing.
    """
    value = program.scaled_objective
    for turn in range(_TURNS_MEANWHILE):
        effort = Effort(_PART * task.gap, task.give_up, 1 << turn)
        gain, number = inf, turn * _MAX_PASSES
        while gain > 0.0 and value(current()) >= (1 - task.gap) * task.enough:
            choice = current()
            better = improve(program, choice, prices, (task.seed, number), task.solver, effort)
            gain, number = value(better) - value(choice), number + 1
            yield TightenResult(prices, fill_idle(program, better))


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
    """Return when a ``share`` of the remaining time will have passed, in monotonic seconds."""
    current_time = monotonic()
    return current_time + share * (task.give_up - current_time)


def _enough(program: Program, choice: Ints, bound: float, task: Task) -> bool:
    target_met = program.scaled_objective(choice) >= _enough_for(bound, task)
    return target_met or task.late


def _enough_for(bound: float, task: Task) -> float:
    """The value that meets the gap."""
    return min(task.enough, (1 - task.gap) * (1 - CBC_TOLERANCE) * bound)


def _prove(
    program: Program, choice: Ints, prices: ItemPrices, task: Task, reach: Reach = QUICK
) -> tuple[Ints, float]:
    choice, bound = prove(program, choice, prices, task.gap, task.give_up, task.solver, reach)
    return fill_idle(program, choice), bound


def _passes(
    program: Program, choice: Ints, prices: Prices, bound: float, task: Task, turn: int = 0
) -> Ints:
    """Replan groups until the gap is met, passes gain too little, or time runs out."""
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
    _: Ints,
    task: Task,
    *,
    warm: bool,
) -> TightenResult:
    """Start with the plan of the class program or of a dive, trying the more promising one first.

    If the class plan would come first but there is a last plan (``warm``), none is made: passes
    over the last plan take a third less time in all, for the same gap (500 jobs on 512 GPUs).
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
    """Solve the class program, assign servers and fill idle GPUs; None if there is no plan.

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
