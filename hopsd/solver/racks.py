"""Solves programs that list only some of the sets of servers of jobs that are bound to racks.

The listed ones give prices; at these, patterns of leaves make sets that fit each other, which are
listed as well; greedy and local search fill what they leave. The bound holds for all sets.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from time import monotonic

import numpy as np

from hopsd.core.placement.program import Program
from hopsd.core.placement.shapes import ShapesOfSize
from hopsd.model.arrays import Ints
from hopsd.solver.backend.checked import CheckedSolver, Solve
from hopsd.solver.backend.choose import backend
from hopsd.solver.backend.model import Answer, Model
from hopsd.solver.bound.column_groups import column_groups
from hopsd.solver.bound.cuts import capacity_rows
from hopsd.solver.bound.dual_prices import find_prices, prices_at
from hopsd.solver.bound.unlisted import bound_of_all
from hopsd.solver.search.greedy import greedy_by_prices, greedy_by_weight, repair
from hopsd.solver.search.leaf_patterns import PackedSet, pack
from hopsd.solver.solution import Solution
from hopsd.solver.solve import SEARCH_SHARE, solve, status_of

Listing = Callable[[Mapping[Hashable, ShapesOfSize]], Program]
"""Builds the program with further sets of servers listed, by the key of their family."""

# The shares of the time for prices, and for the patterns.
_PRICES, _PACKING = 0.45, 0.1
# Up to this size, if all sets are listed, the program is solved as any other.
_WHOLE_MAX = 4_000


def solve_with_racks(
    program: Program,
    listing: Listing,
    gap: float,
    seconds: float,
    *,
    seed: int = 0,
    turns: int | None = None,
    solver: Solve | None = None,
) -> tuple[Program, Solution]:
    """The program with the sets of the solution listed, and the solution; see :func:`solve`."""
    complete = all(sets.complete for sets in program.configurations.families)
    if complete and len(program.value) <= _WHOLE_MAX:
        return program, solve(program, gap, seconds, seed=seed, turns=turns, solver=solver)
    began = monotonic()
    checked = CheckedSolver(solver or backend())
    floor = max(map(program.scaled_objective, (greedy_by_weight(program), *_kept(program))))
    prices = find_prices(program, column_groups(program), floor, began + _PRICES * seconds)
    bound = bound_of_all(program, prices)
    answer = partial(_answer, checked, _PACKING * seconds)
    packings = [pack(program, prices, held, answer) for held in _kept(program)]
    program = listing(_by_key(packings))
    prices = prices_at(program, capacity_rows(program), prices.row)
    choice = max(
        (
            greedy_by_prices(program, prices, _with(program, held, packing))
            for held, packing in zip(_kept(program), packings, strict=True)
        ),
        key=program.scaled_objective,
    )
    left = SEARCH_SHARE * seconds - (monotonic() - began)
    if program.scaled_objective(choice) < (1 - gap) * bound and left > 0 and turns != 0:
        found = solve(program, gap, left, seed=seed, turns=turns, solver=solver, start=choice)
        choice = max(choice, found.choice, key=program.scaled_objective)
        bound = min(bound, found.bound) if complete else bound
    value = program.scaled_objective(choice)
    return program, Solution(choice, max(bound, value), status_of(value, bound, gap, checked))


def _answer(checked: CheckedSolver, seconds: float, model: Model) -> Answer:
    """Without a gap: what is missing would be whole jobs, and CBC mostly needs less than 0.1 s."""
    return checked(model, None, 0.0, seconds, None)


def _kept(program: Program) -> list[Ints]:
    """What may stay while sets are packed: nothing, or what runs if that may."""
    none = np.full(program.configurations.jobs, -1, dtype=np.int64)
    present = program.configurations.present
    stays = bool((present >= 0).any()) and program.feasible(present)
    return [none, present] if stays else [none]


def _by_key(packings: Sequence[Sequence[PackedSet]]) -> dict[Hashable, ShapesOfSize]:
    """The packed sets as shapes."""
    found: dict[Hashable, list[Ints]] = defaultdict(list)
    each: dict[Hashable, int] = {}
    for one in (one for packing in packings for one in packing):
        found[one.sets.key].append(one.servers)
        each[one.sets.key] = one.sets.size // one.sets.count
    return {
        key: ShapesOfSize(np.stack(rows), np.full((len(rows), len(rows[0])), each[key]))
        for key, rows in found.items()
    }


def _with(program: Program, held: Ints, packing: Sequence[PackedSet]) -> Ints:
    """``held`` with the packed sets, those worth most first, as far as they are allowed."""
    choice = held.copy()
    of_key = {sets.key: sets for sets in program.configurations.families}
    for one in packing:
        sets = of_key[one.sets.key]
        row = int(np.searchsorted(sets.jobs, one.job))
        choice[one.job] = sets.first[row] + sets.find(one.servers)
    return repair(program, choice)
