"""Partial allocation auctions: winners and their hidden payments (Themis, section 3.3.1).

The proportionally fair allocation maximises the product of 1/rho. In logarithms that is the
program of eq. 11 to 13 of the Hops paper: at most one bid per app within every server's GPUs,
maximising the sum of the bids' values, log(rho without / rho with). So the same solver is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp
from time import monotonic

import numpy as np

from hopsd.core.placement.configurations import Configurations
from hopsd.core.placement.program import Program, program_of_gains, restrict
from hopsd.model.allocation import Allocation
from hopsd.model.arrays import Floats, Ints
from hopsd.solver.backend.checked_solver import CheckedSolver
from hopsd.solver.backend.solver_choice import backend
from hopsd.solver.bound.column_groups import column_groups
from hopsd.solver.bound.dual_prices import find_prices
from hopsd.solver.large import Task, solve_large
from hopsd.solver.solve import solve

ROUNDING = 1e-9
EXACT_BIDDERS, EXACT_COLUMNS = 8, 100
"""Up to this many bidders and bids, every payment is computed by solving the program without the
app; above, from dual prices. By duality, the others gain from an app's absence no more than the
price of its GPUs, up to the duality gap, so the latter payment is an upper bound."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of an auction.

    ``choice`` (apps,): the bid that each app wins, a column, -1 for none. ``kept_share`` (apps,): c
    of pseudocode 1, the share of it that is left after the hidden payment. ``worth`` is that of all
    winning bids, ``bound`` an upper bound on the worth of any choice.
    """

    choice: Ints
    kept_share: Floats
    worth: float
    bound: float


def program_of(bids: Configurations, capacity: Ints, worth: Floats) -> Program:
    """Express the auction as a program. Bids without ``worth`` (columns,) are left out."""
    keep = np.flatnonzero(worth > ROUNDING)
    columns = replace(bids.select(keep), present=np.full(bids.jobs, -1, dtype=np.int64))
    unit_counts = np.ones(bids.jobs)
    return replace(program_of_gains(columns, unit_counts, worth[keep]), capacity=capacity)


def auction(program: Program, gap: float, seconds: float, seed: int = 0) -> Outcome:
    """Find the winners and their payments within ``seconds``; deterministic for equal input."""
    give_up = monotonic() + seconds
    choice, bound = _solve(
        program, Task(gap, monotonic() + 0.6 * seconds, CheckedSolver(backend()), seed)
    )
    factors = payment_factors(program, choice, Task(gap, give_up, CheckedSolver(backend()), seed))
    worth = program.scaled_objective(choice)
    return Outcome(choice, factors, worth, max(worth, bound))


def _solve(program: Program, task: Task) -> tuple[Ints, float]:
    """Return the best choice and a bound; exact if the program is small."""
    if len(program.value) > EXACT_COLUMNS:
        return solve_large(program, task, turns=1)[:2]
    seconds = max(0.1, task.give_up - monotonic())
    solution = solve(program, task.gap, seconds, seed=task.seed, turns=1)
    return solution.choice, solution.bound


def payment_factors(program: Program, choice: Ints, task: Task) -> Floats:
    """c_i of pseudocode 1, line 8: the others' value with i present over their value without it.

    It is between 0 and 1, and 1 if no other app would gain.
    """
    value: Floats = np.zeros(len(choice))
    value[choice >= 0] = program.value[choice[choice >= 0]]
    best = np.zeros(len(choice))
    has_column = np.diff(program.configurations.start) > 0
    if has_column.any():
        starts = program.configurations.start[:-1][has_column]
        best[has_column] = np.maximum.reduceat(program.value, starts)
    factors = np.ones(len(choice))
    losses = best - value
    winners = np.flatnonzero((choice >= 0) & (losses.sum() - losses > ROUNDING))
    if not len(winners):
        return factors
    if len(choice) <= EXACT_BIDDERS and len(program.value) <= EXACT_COLUMNS:
        for i in winners:
            factors[i] = _exactly(program, value, int(i), task)
        return factors
    prices = find_prices(program, column_groups(program), float(value.sum()), task.give_up)
    payments = program.per_column(prices.item)[choice[winners]]
    factors[winners] = np.exp(-np.maximum(0.0, payments))
    return factors


def _exactly(program: Program, value: Floats, app: int, task: Task) -> float:
    is_other = np.ones(len(value), dtype=np.bool_)
    is_other[app] = False
    reduced_program, _ = restrict(program, is_other, program.capacity)
    best = reduced_program.scaled_objective(_solve(reduced_program, task)[0])
    return exp(min(0.0, float(value.sum() - value[app]) - best))


def after_payment(win: Allocation, factor: float, counts: Sequence[int], luck: float) -> Allocation:
    """The GPUs of ``win`` left after the payment, taken from the fullest servers first.

    Only whole GPUs in one of ``counts`` can be used, so the share is rounded up or down at random
    (``luck``, uniform in 0 to 1) such that the expected payment is exact. If it were always rounded
    up, liars would pay too little. An app that won always keeps at least the smallest count.
    """
    possible = sorted({count for count in counts if count < win.gpus} | {win.gpus})
    share = max(factor * win.gpus, possible[0])
    lower_count = max(count for count in possible if count <= share + ROUNDING)
    upper_count = min((count for count in possible if count > share), default=lower_count)
    size = (
        upper_count
        if luck * (upper_count - lower_count) < share - lower_count - ROUNDING
        else lower_count
    )
    parts: dict[str, int] = {}
    for node, gpus in sorted(win, key=lambda part: (-part[1], part[0])):
        part_gpus = min(gpus, size - sum(parts.values()))
        if part_gpus:
            parts[node] = part_gpus
    return Allocation.of(parts)
