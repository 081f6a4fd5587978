"""Solve a plan's program within its time limit; there is always an answer and a bound."""

from __future__ import annotations

import logging
from dataclasses import replace
from math import inf
from time import monotonic

import numpy as np

from hopsd.core.placement.program import Program, drop_oversized
from hopsd.model.arrays import Ints
from hopsd.model.plan import PlanStatus
from hopsd.solver.backend.checked_solver import CheckedSolver, Solve
from hopsd.solver.backend.solver_choice import backend
from hopsd.solver.exact import solve_exactly
from hopsd.solver.large import CBC_TOLERANCE, Task, solve_large
from hopsd.solver.search.greedy import fill_idle, greedy_by_weight
from hopsd.solver.solution import Solution
from hopsd.solver.weight_classes import improve_light_jobs

log = logging.getLogger(__name__)

# The rest is for what follows the search, under load: the last fill, the check, the reasons.
SEARCH_SHARE = 0.9
"""The share of the remaining time that the search gets."""
# The share of the search time for the whole program; the rest is for the light jobs.
_WHOLE_SHARE = 0.85


def solve(
    program: Program,
    gap: float,
    seconds: float,
    *,
    seed: int = 0,
    turns: int | None = None,
    solver: Solve | None = None,
    start: Ints | None = None,
    enough: float = inf,
) -> Solution:
    """Return the best choice found within ``seconds``, and a proven upper bound on any choice.

    Deterministic as long as the time does not run out. Running jobs that may stay are a warm start:
    most of a round's plan is the previous one's. ``turns`` is that of :func:`solve_large`; None
    goes on until the gap is proven or time runs out. ``solver`` defaults to the configured one.
    ``start`` is another choice to start from. A choice worth ``enough`` (scaled) also ends the
    search.
    """
    part, columns = drop_oversized(program)
    if columns is not None:
        if start is not None:
            position = np.minimum(np.searchsorted(columns, start), len(columns) - 1)
            start = np.where((start >= 0) & (columns[position] == start), position, -1)
        solution = solve(
            part,
            gap,
            seconds,
            seed=seed,
            turns=turns,
            solver=solver,
            start=start,
            enough=enough,
        )
        is_placed = solution.choice >= 0
        solution.choice[is_placed] = columns[solution.choice[is_placed]]
        prices = None if solution.prices is None else solution.prices.renumber(columns)
        return replace(solution, prices=prices)
    began = monotonic()
    give_up = began + SEARCH_SHARE * seconds
    if not len(program.value):
        return Solution(greedy_by_weight(program), 0.0, PlanStatus.OPTIMAL)
    exact = solve_exactly(program)
    if exact is not None and program.feasible(exact):
        return Solution(exact, program.scaled_objective(exact), PlanStatus.OPTIMAL)
    checked_solver = CheckedSolver(solver or backend())
    task = Task(gap, give_up, checked_solver, seed)
    whole_give_up = began + SEARCH_SHARE * _WHOLE_SHARE * seconds
    whole_task = replace(task, give_up=whole_give_up, enough=enough)
    start = program.configurations.present if start is None else start
    running = start if program.feasible(start) else None
    choice, bound, prices = solve_large(program, whole_task, running, turns)
    choice = fill_idle(program, improve_light_jobs(program, choice, task, turns))
    objective = program.scaled_objective(choice)
    if checked_solver.has_failed:
        log.warning("the solver gave no usable answer; the plan was made without it")
    return Solution(choice, bound, status_of(objective, bound, gap, checked_solver), prices)


def status_of(objective: float, bound: float, gap: float, solver: CheckedSolver) -> PlanStatus:
    """Return the status; TIME_LIMIT if time or turns ran out before the gap was proven."""
    if objective >= bound * (1 - CBC_TOLERANCE):
        return PlanStatus.OPTIMAL
    if objective >= (1 - gap) * bound:
        return PlanStatus.WITHIN_GAP
    return PlanStatus.FALLBACK if solver.has_failed else PlanStatus.TIME_LIMIT
