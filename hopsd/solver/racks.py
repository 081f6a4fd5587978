"""Solve programs that list only some of the sets of servers of jobs that are bound to racks.

The listed sets give prices; at these, patterns of leaves yield sets that fit together, which are
listed as well; greedy and local search fill the remaining GPUs. The bound holds for all sets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from time import monotonic

import numpy as np

from hopsd.core.placement.listing import Listing, Sets, renumber_choice, with_sets
from hopsd.core.placement.program import Program
from hopsd.core.placement.rack_sets import RackFamily
from hopsd.model.arrays import Ints
from hopsd.solver.all_sets import steps_in_child
from hopsd.solver.backend.checked_solver import CheckedSolver, Solve
from hopsd.solver.backend.integer_program import Answer, Model
from hopsd.solver.backend.solver_choice import backend
from hopsd.solver.bound.column_groups import ColumnGroups, column_groups
from hopsd.solver.bound.cuts import capacity_rows
from hopsd.solver.bound.dual_prices import (
    Prices,
    descend_from,
    find_prices,
    prices_at,
)
from hopsd.solver.bound.unlisted import (
    better_sets,
    bound_of_all,
    bound_of_items,
    bound_without_prices,
)
from hopsd.solver.kind_bound import bound_by_kinds
from hopsd.solver.search.greedy import greedy_by_prices, greedy_by_weight, repair
from hopsd.solver.search.leaf_patterns import PackedSet, pack
from hopsd.solver.solution import Solution
from hopsd.solver.solve import SEARCH_SHARE, solve, status_of

# The share of the time for the patterns of each round, and for the bound by kinds; the share of the
# gap by which that bound may exceed its least value.
_PACKING, _PROOF = 0.2, 0.02
# The share of the time for rounds; the rest is for a search over groups of servers.
_ROUNDS = 0.6
# The last round is the first whose plan gains less than this share of what is still missing: a
# search over groups of servers gains more in that time.
_GAIN = 0.25
# The share of the remaining time for cuts and dives over all sets; the rest is for the search. The
# most columns: with 1.1 million (5,000 GPUs) the first four rounds and the dive took 39 CPU s.
_ALL_SETS, _MAX_COLUMNS = 0.7, 500_000
# Sets are listed until unlisted ones raise the bound by no more than this share of the gap, at most
# this often.
_CLOSE, _PRICINGS = 0.2, 4
# The search knows only the listed sets, so its gap is reduced by how far their bound is below the
# one on all sets, down to this share of the gap.
_MIN_GAP = 0.25
# A column of the last plan stays if it loses no more than this share of the requested gap.
_STAYS = 0.5
# Up to this size, if all sets are listed, the program is solved like any other.
_MAX_WHOLE = 4_000


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
    """Return the program that lists the solution's sets, and the solution; see :func:`solve`.

    Rounds alternate between prices and plans: a better plan gives closer prices, and vice versa.
    """
    if program.configurations.lists_all_sets and len(program.value) <= _MAX_WHOLE:
        return program, solve(program, gap, seconds, seed=seed, turns=turns, solver=solver)
    began = monotonic()
    checked_solver = CheckedSolver(solver or backend())
    last = began + _ROUNDS * seconds
    # No gap is allowed: it would cost whole jobs, and CBC mostly needs less than 0.1 s.
    answer = partial(_answer, checked_solver, 0.0, _PACKING * seconds, last)
    rounds = _Rounds(program, listing, gap, answer)
    while not (rounds.number and rounds.enough) and monotonic() < last:
        before = rounds.value
        rounds.go_on(last)
        if rounds.number == 1 and turns != 0 and not rounds.enough:
            rounds.prove(partial(_answer, checked_solver, _PROOF * gap, _PACKING * seconds, last))
        if rounds.number > 1 and rounds.value - before <= _GAIN * rounds.missing:
            break
    if not rounds.enough:
        rounds.fit_best()
    give_up = began + SEARCH_SHARE * seconds
    if turns != 0 and not rounds.enough:
        current_time = monotonic()
        rounds.search_all_sets(current_time + _ALL_SETS * (give_up - current_time))
    search = partial(solve, seed=seed, turns=turns, solver=solver)
    while turns != 0 and not rounds.enough and monotonic() < give_up:
        if not rounds.search(search, give_up):
            break
    value, bound = rounds.value, rounds.bound
    status = status_of(value, bound, gap, checked_solver)
    return rounds.program, Solution(rounds.choice, max(bound, value), status)


class _Rounds:
    """The best plan and bound so far; ``program`` lists all sets that were ever packed.

    ``beyond`` is the ratio of the last prices' bound on all sets to that on the listed ones.
    """

    def __init__(
        self, program: Program, listing: Listing, gap: float, answer: Callable[[Model], Answer]
    ) -> None:
        self.program, self.bound, self.number = program, bound_without_prices(program), 0
        self.beyond = 1.0
        starts = (greedy_by_weight(program), *_starting_choices(program))
        self.choice = max(starts, key=program.scaled_objective)
        self._listing, self._gap, self._answer = listing, gap, answer
        self._prices: Prices | None = None
        self._sets: Sets = {}

    @property
    def value(self) -> float:
        """The plan's value."""
        return self.program.scaled_objective(self.choice)

    @property
    def missing(self) -> float:
        """How much value the plan lacks to be within the gap; 0 or less if it is within."""
        return (1 - self._gap) * self.bound - self.value

    @property
    def enough(self) -> bool:
        """Whether the plan is within the gap."""
        return self.missing <= 0.0

    def go_on(self, give_up: float) -> None:
        """Find new prices from the best plan, and plans at these prices, as far as time allows
        until ``give_up``.
        """
        program, self.number = self.program, self.number + 1
        server_prices: list[Prices | None] = []
        if self._prices is None:
            parts = column_groups(program)
            prices = find_prices(program, parts, self.value, give_up)
            if _could_all_run(program, parts):
                server_prices.append(None)
        else:
            rows, row = capacity_rows(program), self._prices.row
            prices = descend_from(program, rows, row, self.value, give_up)
        prices = self._close(prices, give_up)
        program = self.program
        self._plan(greedy_by_prices(program, prices))
        if monotonic() > give_up:
            return
        self._plan(greedy_by_prices(program, prices, self._cheap(prices)))
        if not self.enough:
            server_prices.append(prices)
        indices = range(len(_starting_choices(program)))
        packings = [
            (
                position,
                pack(program, packed_set, _starting_choices(program)[position], self._answer),
            )
            for packed_set in server_prices
            for position in indices
        ]
        if monotonic() > give_up:
            return
        sets = [(way.sets, way.servers) for _, packing in packings for way in packing]
        self._list(sets)
        if self.program is not program:
            prices = prices_at(self.program, capacity_rows(self.program), prices.row)
        self._prices = prices
        for position, packing in packings:
            start = _with_packing(self.program, _starting_choices(self.program)[position], packing)
            self._plan(greedy_by_prices(self.program, prices, start))

    def _close(self, prices: Prices, give_up: float) -> Prices:
        """List unlisted sets that raise the bound and find new prices, repeatedly, until unlisted
        sets raise it little.
        """
        for number in range(_PRICINGS):
            bound = bound_of_all(self.program, prices)
            self.bound, self.beyond = min(self.bound, bound), max(1.0, bound / prices.bound)
            if self.enough or self.beyond <= 1 + _CLOSE * self._gap or monotonic() > give_up:
                break
            rng = np.random.default_rng(number)
            self._list(list(better_sets(self.program, prices, rng)))
            rows = capacity_rows(self.program)
            prices = descend_from(self.program, rows, prices.row, self.value, give_up)
        return prices

    def fit_best(self) -> None:
        """Plan at the last prices by best fit, leaving as few GPUs on used servers as possible.

        Not done in every round: such a plan takes servers of all leaves, and leaves fewer sets for
        other jobs.
        """
        if self._prices is not None:
            prices = prices_at(self.program, capacity_rows(self.program), self._prices.row)
            self._plan(greedy_by_prices(self.program, prices, best_fit=True))

    def prove(self, answer: Callable[[Model], Answer]) -> None:
        """Bound by patterns of servers that are alike, if they are short of cores or memory."""
        if self.program.configurations.short_of_more_than_gpus:
            self.bound = min(self.bound, bound_by_kinds(self.program, answer))

    def search(self, solve: Callable[..., Solution], give_up: float) -> bool:
        """Search among the listed sets from the best plan, then list sets that do better at its
        prices. Returns whether another search with these could prove more.
        """
        program, gap = self.program, max(_MIN_GAP * self._gap, 1 - (1 - self._gap) * self.beyond)
        seconds = give_up - monotonic()
        enough = (1 - self._gap) * self.bound
        complete = program.configurations.lists_all_sets
        solution = solve(program, gap, seconds, start=self.choice, enough=enough)
        self._plan(solution.choice)
        if complete:
            self.bound = min(self.bound, solution.bound)
            return False
        if solution.prices is None:
            return False
        bound = bound_of_items(program, solution.prices)
        self.bound, self.beyond = min(self.bound, bound), max(1.0, bound / solution.prices.bound)
        rng = np.random.default_rng(0)
        sets = list(better_sets(program, solution.prices, rng))
        self._list(sets)
        return bool(sets) and self.value >= (1 - gap) * solution.prices.bound

    def search_all_sets(self, give_up: float) -> None:
        """Cut and dive, and list the sets that do better at the cuts' prices, in a child process.

        Does nothing if servers are not short of cores or memory: cuts prove little then. Nor if the
        program is so large that a dive would come too late.
        """
        program, columns = self.program, self.program.configurations
        is_small = len(program.value) <= _MAX_COLUMNS and columns.segments is None
        gains = columns.short_of_more_than_gpus and not columns.lists_all_sets
        prices = self._prices
        if prices is None or not (is_small and gains):
            return
        for step in steps_in_child(
            program, self._listing, self._sets, prices.row, self.value, self._gap, give_up
        ):
            self._list(step.sets)
            if step.choice is not None and self.program.feasible(step.choice):
                self._plan(step.choice)
            with suppress(ValueError):
                prices_of_step = step.prices(self.program)
                self.bound = min(self.bound, bound_of_items(self.program, prices_of_step))
            if self.enough:
                break

    def _plan(self, choice: Ints) -> None:
        self.choice = max(self.choice, choice, key=self.program.scaled_objective)

    def _cheap(self, prices: Prices) -> Ints:
        """Return the plan reduced to its columns that lose little at the prices."""
        current, placed_jobs = self.choice.copy(), np.flatnonzero(self.choice >= 0)
        columns = self.choice[placed_jobs]
        limit = _STAYS * self._gap * self.program.value[columns]
        current[placed_jobs[prices.loss(self.program, columns) > limit]] = -1
        return current

    def _list(self, sets: Sequence[tuple[RackFamily, Ints]]) -> None:
        """Add sets of servers to the listed ones, and renumber the plan."""
        if not sets:
            return
        self._sets = with_sets(self._sets, sets)
        before, self.program = self.program, self._listing(self._sets)
        self.choice = renumber_choice(
            before.configurations, self.program.configurations, self.choice
        )


def _could_all_run(program: Program, parts: ColumnGroups) -> bool:
    """Whether all jobs' smallest sizes together are no more than the idle GPUs."""
    minimum = np.full(program.configurations.jobs, np.iinfo(np.int64).max)
    np.minimum.at(minimum, parts.job, parts.size)
    return int(minimum[np.unique(parts.job)].sum()) <= int(program.idle.sum())


def _answer(
    checked_solver: CheckedSolver, gap: float, seconds: float, give_up: float, model: Model
) -> Answer:
    return checked_solver(model, None, gap, min(seconds, give_up - monotonic()), None)


def _starting_choices(program: Program) -> list[Ints]:
    """Return the choices to pack sets around: an empty one, and what runs now if that may stay."""
    empty = np.full(program.configurations.jobs, -1, dtype=np.int64)
    present = program.configurations.present
    stays = bool((present >= 0).any()) and program.feasible(present)
    return [empty, present] if stays else [empty]


def _with_packing(program: Program, current: Ints, packing: Sequence[PackedSet]) -> Ints:
    """Add the packed sets to ``current``; if not all fit, the most valuable ones stay."""
    choice = current.copy()
    sets_by_key = {sets.key: sets for sets in program.configurations.families}
    for packed_set in packing:
        sets = sets_by_key[packed_set.sets.key]
        row = int(np.searchsorted(sets.jobs, packed_set.job))
        choice[packed_set.job] = sets.first[row] + sets.find(packed_set.servers)
    return repair(program, choice)
