"""Programs too large to be solved as written: prices, a few starts, and passes over groups."""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic

from hopsd.core.program import Program
from hopsd.core.shapes import Ints
from hopsd.solver.dealing import deal
from hopsd.solver.greedy import by_prices, by_weight, fill
from hopsd.solver.improve import Effort, improve
from hopsd.solver.patterns import class_program, read_class_plan
from hopsd.solver.prices import Prices, find_prices
from hopsd.solver.prove import prove
from hopsd.solver.segments import Segments, segments
from hopsd.solver.watched import Watched

_PASSES_MAX = 30
# Of the gap asked for: what one group or the class program may leave open, ...
_PART = 0.3
# ... and what two passes must gain together, or they were the last.
_WORTHWHILE = 0.15


@dataclass(frozen=True, slots=True)
class Task:
    """How well (relative ``gap``), until when (monotonic seconds), with which ``solver``."""

    gap: float
    give_up: float
    solver: Watched
    seed: int = 0

    @property
    def late(self) -> bool:
        return monotonic() >= self.give_up


def solve_large(program: Program, task: Task, start: Ints | None = None) -> tuple[Ints, float]:
    """A choice, no worse than ``start``, and a proven bound on all choices."""
    value = program.scaled_objective
    starts = [by_weight(program)]
    if start is not None:
        starts.append(fill(program, start))
    parts = segments(program)
    prices = find_prices(program, parts, max(map(value, starts)), task.give_up)
    starts.append(by_prices(program, prices))
    effort = Effort(_PART * task.gap, task.give_up)
    if not task.late:
        dealt = _class_start(program, parts, prices, effort, task.solver)
        starts += [] if dealt is None else [fill(program, dealt)]
    choice = max(starts, key=value)
    history = [value(choice)]
    for number in range(_PASSES_MAX):
        worth = _WORTHWHILE * task.gap * history[-1]
        stalled = len(history) > 2 and history[-1] - history[-3] <= worth
        if stalled or task.late or history[-1] >= (1 - task.gap) * prices.bound:
            break
        seed = (task.seed, number)
        better = improve(program, choice, prices, seed, task.solver, effort)
        choice = fill(program, better)
        history.append(value(choice))
    if task.late or history[-1] >= (1 - task.gap) * prices.bound:
        return choice, prices.bound
    better, bound = prove(program, choice, prices, task.gap, task.give_up, task.solver)
    return fill(program, better), bound


def _class_start(
    program: Program, parts: Segments, prices: Prices, effort: Effort, solver: Watched
) -> Ints | None:
    """The class program's plan, dealt out; None where there is none."""
    classes = class_program(program, parts, prices.server)
    if classes is None:
        return None
    answer = solver(classes.model, None, effort.gap, effort.give_up - monotonic())
    plan = read_class_plan(classes, answer)
    choice = None if plan is None else deal(program, parts, plan)
    return choice if choice is not None and program.feasible(choice) else None
