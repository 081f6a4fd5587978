"""Tighten the bound: CBC over all columns that a better plan could use."""

from __future__ import annotations

from time import monotonic

import numpy as np

from hopsd.core.program import Program
from hopsd.core.shapes import Ints
from hopsd.solver.bound import reduced_losses
from hopsd.solver.model import chosen_columns, model
from hopsd.solver.prices import Prices
from hopsd.solver.watched import Watched

# CBC's root takes about 0.5 s for so many columns (512 GPUs, fragmented).
_COLUMNS_MAX = 12_000
_NODES_MAX = 2_000


def prove(
    program: Program, choice: Ints, prices: Prices, gap: float, give_up: float, solver: Watched
) -> tuple[Ints, float]:
    """A choice no worse, and a bound no higher, than what is in hand.

    Every column has a loss at the prices, and a plan's value is the bound less its columns'
    losses and the prices of what it leaves idle. A plan better than ``choice`` therefore has no
    column that loses more than the distance to the bound; without those columns the program is
    often small enough for CBC, whose bound then holds for the whole.
    """
    value = program.scaled_objective(choice)
    loss = reduced_losses(program, prices.server, prices.job)
    useful = loss <= (prices.bound - value) * (1 + 1e-9)
    if np.count_nonzero(useful) > _COLUMNS_MAX:
        return choice, prices.bound
    columns = np.union1d(np.flatnonzero(useful), choice[choice >= 0])
    start = np.isin(columns, choice).astype(np.float64)
    whole = model(program, columns, program.capacity)
    answer = solver(whole, start, gap, give_up - monotonic(), _NODES_MAX)
    unit = float(program.value[columns].max())
    found = _choice(program, chosen_columns(columns, answer))
    if found is not None and program.scaled_objective(found) > value:
        choice, value = found, program.scaled_objective(found)
    return choice, min(prices.bound, max(value, answer.bound * unit))


def _choice(program: Program, columns: Ints | None) -> Ints | None:
    if columns is None:
        return None
    choice = np.full(program.configurations.jobs, -1, dtype=np.int64)
    choice[np.searchsorted(program.configurations.start, columns, side="right") - 1] = columns
    one_each = int((choice >= 0).sum()) == len(columns)
    return choice if one_each and program.feasible(choice) else None
