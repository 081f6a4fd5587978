"""Solve the program of a plan within its time: always an answer, always a bound."""

from __future__ import annotations

from time import monotonic

from hopsd.core.program import Program
from hopsd.core.shapes import Ints
from hopsd.model.plan import PlanStatus
from hopsd.solver import cbc
from hopsd.solver.dealing import deal
from hopsd.solver.exact import solve_exactly
from hopsd.solver.greedy import by_prices, by_weight, fill
from hopsd.solver.improve import Effort, Solve, improve
from hopsd.solver.patterns import class_program, read_class_plan
from hopsd.solver.prices import Prices, find_prices
from hopsd.solver.segments import Segments, segments
from hopsd.solver.solution import Solution

_PASSES = 8
# Of the gap: two passes that gain less together are the last.
_STALLED = 0.1
# Of the gap asked for, what one group or the class program may leave open.
_PART = 0.3
_OPTIMAL = 1e-9


def solve(program: Program, gap: float, seconds: float, solver: Solve = cbc.solve) -> Solution:
    """The best choice found within ``seconds``, with a proven upper bound on any choice."""
    give_up = monotonic() + seconds
    floor = by_weight(program)
    if not len(program.value):
        return Solution(floor, 0.0, PlanStatus.OPTIMAL)
    exact = solve_exactly(program)
    if exact is not None and program.feasible(exact):
        return Solution(exact, program.scaled_objective(exact), PlanStatus.OPTIMAL)
    return _solve_large(program, floor, gap, give_up, solver)


def _solve_large(
    program: Program, floor: Ints, gap: float, give_up: float, solver: Solve
) -> Solution:
    value = program.scaled_objective
    parts = segments(program)
    prices = find_prices(program, parts, value(floor), give_up)
    effort = Effort(_PART * gap, give_up)
    starts = [floor, by_prices(program, prices)]
    dealt = _class_start(program, parts, prices, effort, solver)
    if dealt is not None:
        starts.append(fill(program, dealt))
    choice = max(starts, key=value)
    history = [value(choice)]
    for seed in range(_PASSES):
        stalled = len(history) > 2 and history[-1] - history[-3] < _STALLED * gap * history[-1]
        if stalled or history[-1] >= (1 - gap) * prices.bound or monotonic() >= give_up:
            break
        choice = fill(program, improve(program, choice, prices, seed, solver, effort))
        history.append(value(choice))
    return Solution(choice, prices.bound, _status(value(choice), prices.bound, gap))


def _class_start(
    program: Program, parts: Segments, prices: Prices, effort: Effort, solver: Solve
) -> Ints | None:
    """The class program's plan, dealt out; None where there is none."""
    classes = class_program(program, parts, prices.server)
    if classes is None:
        return None
    answer = solver(classes.model, None, effort.gap, effort.give_up - monotonic(), None)
    plan = read_class_plan(classes, answer)
    choice = None if plan is None else deal(program, parts, plan)
    return choice if choice is not None and program.feasible(choice) else None


def _status(objective: float, bound: float, gap: float) -> PlanStatus:
    if objective >= bound * (1 - _OPTIMAL):
        return PlanStatus.OPTIMAL
    return PlanStatus.WITHIN_GAP if objective >= (1 - gap) * bound else PlanStatus.TIME_LIMIT
