"""Tighten the bound: CBC over every column that a better plan could use."""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic

import numpy as np

from hopsd.core.placement.program import Program
from hopsd.model.arrays import NONE, Ints
from hopsd.solver.backend.checked_solver import CheckedSolver
from hopsd.solver.backend.integer_program import chosen_columns, model
from hopsd.solver.bound.reduced_cost import ItemPrices


@dataclass(frozen=True, slots=True)
class Reach:
    """Limits for CBC: how many ``columns`` it gets, and how many ``nodes`` (None: no limit)."""

    columns: int
    nodes: int | None


# CBC's root takes about 0.5 s for this many columns (512 GPUs, fragmented).
NODES = 2_000
QUICK = Reach(12_000, NODES)


def prove(
    program: Program,
    choice: Ints,
    prices: ItemPrices,
    gap: float,
    give_up: float,
    solver: CheckedSolver,
    reach: Reach = QUICK,
) -> tuple[Ints, float]:
    """Improve the current choice and bound; neither gets worse.

    Every column has a reduced loss at the prices, and a plan's value is the bound less its columns'
    losses and the price of what it leaves idle. So no plan better than ``choice`` uses a column
    that loses more than the distance to the bound. Without such columns the program is often small
    enough for CBC, whose bound then holds for the whole program. If it is still too large, a
    smaller program may do, which has only the columns of plans so good that ``choice`` would miss
    the gap: showing that there is no such plan suffices.
    """
    value = program.scaled_objective(choice)
    for target in (value, value / (1 - gap)):
        useful = _useful(program, prices, target, reach.columns)
        if useful is not None:
            break
    else:
        return choice, prices.bound
    columns = np.union1d(useful, choice[choice >= 0])
    start = np.isin(columns, choice).astype(np.float64)
    all_columns = model(program, columns, program.capacity)
    answer = solver(all_columns, start, gap, give_up - monotonic(), reach.nodes)
    unit = float(program.value[columns].max())
    proof_choice = _choice(program, chosen_columns(columns, answer))
    if proof_choice is not None and program.scaled_objective(proof_choice) > value:
        choice, value = proof_choice, program.scaled_objective(proof_choice)
    return choice, min(prices.bound, max(target, value, answer.bound * unit))


def _useful(program: Program, prices: ItemPrices, target: float, limit: int) -> Ints | None:
    """Return the columns that a plan above ``target`` could use; None if more than ``limit``."""
    parts, count = [NONE], 0
    for part in prices.near(program, absolute=(prices.bound - target) * (1 + 1e-9)):
        parts.append(part)
        count += len(part)
        if count > limit:
            return None
    return np.concatenate(parts)


def _choice(program: Program, columns: Ints | None) -> Ints | None:
    if columns is None:
        return None
    choice = np.full(program.configurations.jobs, -1, dtype=np.int64)
    choice[np.searchsorted(program.configurations.start, columns, side="right") - 1] = columns
    one_each = int((choice >= 0).sum()) == len(columns)
    return choice if one_each and program.feasible(choice) else None
