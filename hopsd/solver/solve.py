"""Solve the program of a plan within its time: always an answer, always a bound."""

from __future__ import annotations

from time import monotonic

import numpy as np

from hopsd.core.program import Program
from hopsd.core.shapes import Ints
from hopsd.model.plan import PlanStatus
from hopsd.solver import cbc
from hopsd.solver.bound import price_bound
from hopsd.solver.exact import choice_of, model
from hopsd.solver.greedy import fill, greedy
from hopsd.solver.solution import Solution


def solve(program: Program, gap: float, seconds: float) -> Solution:
    """The best choice found within ``seconds``, with a proven upper bound on any choice."""
    give_up = monotonic() + seconds
    choice = greedy(program)
    columns = np.arange(len(program.value))
    if not len(columns):
        return Solution(choice, 0.0, PlanStatus.OPTIMAL)
    relaxed = cbc.solve(model(program, columns, integer=False), give_up - monotonic(), gap)
    scale = float(program.value.max()) or 1.0
    prices = np.zeros(len(program.capacity))
    if relaxed.prices is not None:
        prices = relaxed.prices[program.configurations.jobs :] * scale
    bound = min(price_bound(program, prices), price_bound(program, np.zeros_like(prices)))
    choice = max(choice, greedy(program, prices), key=program.scaled_objective)
    start = np.isin(columns, choice).astype(np.float64)
    whole = cbc.solve(
        model(program, columns, integer=True), give_up - monotonic(), gap, start=start
    )
    found = None if whole.x is None else choice_of(program, columns, whole.x)
    if found is not None and program.scaled_objective(found) >= program.scaled_objective(choice):
        choice = found
    order = np.lexsort((np.arange(len(choice)), -program.weight))
    choice = fill(program, choice, order)
    objective = program.scaled_objective(choice)
    if whole.proven and found is not None:
        bound = min(bound, objective * (1 + gap) if gap else objective)
    return Solution(choice, max(bound, objective), _status(objective, bound, gap, found))


def _status(objective: float, bound: float, gap: float, found: Ints | None) -> PlanStatus:
    if found is None:
        return PlanStatus.FALLBACK
    if objective >= bound * (1 - 1e-9):
        return PlanStatus.OPTIMAL
    if bound - objective <= gap * bound:
        return PlanStatus.WITHIN_GAP
    return PlanStatus.TIME_LIMIT
