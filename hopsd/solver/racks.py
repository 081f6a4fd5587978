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
from hopsd.core.placement.rack_sets import RackFamily, union
from hopsd.core.placement.shapes import ShapesOfSize
from hopsd.model.arrays import Ints
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
from hopsd.solver.search.greedy import greedy_by_prices, greedy_by_weight, repair
from hopsd.solver.search.leaf_patterns import PackedSet, pack
from hopsd.solver.solution import Solution
from hopsd.solver.solve import SEARCH_SHARE, solve, status_of

Listing = Callable[[Mapping[Hashable, ShapesOfSize]], Program]
"""Builds the program with further sets of servers listed, by the key of their family."""

# The share of the time for the patterns, in each round.
_PACKING = 0.2
# The share of the time for rounds; the rest is for a search over groups of servers.
_ROUNDS = 0.6
# A round whose plan gains less than this share of what is still missing is the last: a search over
# groups of servers gains more in that time.
_GAIN = 0.25
# Sets are listed until they raise the bound by no more than this share of the gap, so often at
# most; of each kind so many beside the best, since servers that are alike have different prices.
_CLOSE, _PRICINGS, _ALIKE = 0.2, 4, 15
# The search knows the listed sets alone: its gap is smaller by what their bound lacks, down to this
# share.
_MIN_GAP = 0.25
# A column of the last plan stays where it loses no more than this share of the requested gap.
_STAYS = 0.5
# Up to this size, if all sets are listed, the program is solved as any other.
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
    """The program with the sets of the solution listed, and the solution; see :func:`solve`.

    Rounds of prices and plans: the better the plan, the closer the prices, and the reverse.
    """
    complete = all(sets.complete for sets in program.configurations.families)
    if complete and len(program.value) <= _MAX_WHOLE:
        return program, solve(program, gap, seconds, seed=seed, turns=turns, solver=solver)
    began = monotonic()
    checked_solver = CheckedSolver(solver or backend())
    last = began + _ROUNDS * seconds
    answer = partial(_answer, checked_solver, _PACKING * seconds, last)
    rounds = _Rounds(program, listing, gap, answer)
    while not (rounds.number and rounds.enough) and monotonic() < last:
        before = rounds.value
        rounds.go_on(last)
        if rounds.number > 1 and rounds.value - before <= _GAIN * rounds.missing:
            break
    search = partial(solve, seed=seed, turns=turns, solver=solver)
    give_up = began + SEARCH_SHARE * seconds
    while turns != 0 and not rounds.enough and monotonic() < give_up:
        if not rounds.search(search, give_up):
            break
    value, bound = rounds.value, rounds.bound
    status = status_of(value, bound, gap, checked_solver)
    return rounds.program, Solution(rounds.choice, max(bound, value), status)


class _Rounds:
    """The best plan and bound so far; ``program`` lists all sets that were ever packed.

    ``beyond``: the last prices' bound on all sets over that on the listed ones.
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
        self._sets: dict[Hashable, ShapesOfSize] = {}

    @property
    def value(self) -> float:
        """What the plan is worth."""
        return self.program.scaled_objective(self.choice)

    @property
    def missing(self) -> float:
        """What the plan lacks to be within the gap; 0 or less: it is."""
        return (1 - self._gap) * self.bound - self.value

    @property
    def enough(self) -> bool:
        """Whether the plan is within the gap."""
        return self.missing <= 0.0

    def go_on(self, give_up: float) -> None:
        """New prices from the best plan, and plans at these prices; by ``give_up``, as far as it
        comes.
        """
        program, self.number = self.program, self.number + 1
        of_servers: list[Prices | None] = []
        if self._prices is None:
            parts = column_groups(program)
            prices = find_prices(program, parts, self.value, give_up)
            if _could_all_run(program, parts):
                of_servers.append(None)
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
            of_servers.append(prices)
        indices = range(len(_starting_choices(program)))
        packings = [
            (
                position,
                pack(program, packed_set, _starting_choices(program)[position], self._answer),
            )
            for packed_set in of_servers
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
        """Prices where few sets raise the bound that are not listed: list those that do, and find
        new prices.
        """
        for number in range(_PRICINGS):
            bound = bound_of_all(self.program, prices)
            self.bound, self.beyond = min(self.bound, bound), max(1.0, bound / prices.bound)
            if self.enough or self.beyond <= 1 + _CLOSE * self._gap or monotonic() > give_up:
                break
            rng = np.random.default_rng(number)
            self._list(list(better_sets(self.program, prices, rng, _ALIKE)))
            rows = capacity_rows(self.program)
            prices = descend_from(self.program, rows, prices.row, self.value, give_up)
        return prices

    def search(self, solve: Callable[..., Solution], give_up: float) -> bool:
        """Search among the listed sets from the best plan; whether another search with those listed
        that its prices lack could prove more.
        """
        program, gap = self.program, max(_MIN_GAP * self._gap, 1 - (1 - self._gap) * self.beyond)
        solution = solve(program, gap, give_up - monotonic(), start=self.choice)
        self._plan(solution.choice)
        if all(sets.complete for sets in program.configurations.families):
            self.bound = min(self.bound, solution.bound)
            return False
        if solution.prices is None:
            return False
        bound = bound_of_items(program, solution.prices)
        self.bound, self.beyond = min(self.bound, bound), max(1.0, bound / solution.prices.bound)
        rng = np.random.default_rng(0)
        sets = list(better_sets(program, solution.prices, rng, _ALIKE))
        self._list(sets)
        return bool(sets) and self.value >= (1 - gap) * solution.prices.bound

    def _plan(self, choice: Ints) -> None:
        self.choice = max(self.choice, choice, key=self.program.scaled_objective)

    def _cheap(self, prices: Prices) -> Ints:
        """The plan's columns that lose little at the prices."""
        current, placed_jobs = self.choice.copy(), np.flatnonzero(self.choice >= 0)
        columns = self.choice[placed_jobs]
        limit = _STAYS * self._gap * self.program.value[columns]
        current[placed_jobs[prices.loss(self.program, columns) > limit]] = -1
        return current

    def _list(self, sets: Sequence[tuple[RackFamily, Ints]]) -> None:
        """List sets of servers, too."""
        if not sets:
            return
        for key, shapes in _by_key(sets).items():
            known_shapes = self._sets.get(key)
            self._sets[key] = shapes if known_shapes is None else union(known_shapes, shapes)
        before, self.program = self.program, self._listing(self._sets)
        self.choice = _renumber(before, self.program, self.choice)


def _could_all_run(program: Program, parts: ColumnGroups) -> bool:
    """Whether all jobs' smallest sizes together are no more than the idle GPUs."""
    minimum = np.full(program.configurations.jobs, np.iinfo(np.int64).max)
    np.minimum.at(minimum, parts.job, parts.size)
    return int(minimum[np.unique(parts.job)].sum()) <= int(program.idle.sum())


def _renumber(before: Program, after: Program, choice: Ints) -> Ints:
    """``choice`` of a program as columns of one that lists more sets."""
    old, new = before.configurations, after.configurations
    column = new.start[:-1] + choice - old.start[:-1]
    # After the sets come only columns that stay last: where a job runs now.
    ends = new.start[1:] - (old.start[1:] - choice)
    of_key = {sets.key: sets for sets in new.families}
    inside = np.zeros(len(choice), dtype=np.bool_)
    bound = np.zeros(len(choice), dtype=np.bool_)
    for sets in old.families:
        counterpart = of_key[sets.key]
        bound[sets.jobs] = True
        offset = choice[sets.jobs] - sets.first
        for row in np.flatnonzero((offset >= 0) & (offset < len(sets.listed_shapes))).tolist():
            job = sets.jobs[row]
            column[job] = counterpart.first[row] + counterpart.find(
                sets.listed_shapes.servers[offset[row]]
            )
            inside[job] = True
    column = np.where(bound & ~inside, ends, column)
    return np.where(choice < 0, -1, column)


def _answer(checked_solver: CheckedSolver, seconds: float, give_up: float, model: Model) -> Answer:
    """Without a gap: what is missing would be whole jobs, and CBC mostly needs less than 0.1 s."""
    return checked_solver(model, None, 0.0, min(seconds, give_up - monotonic()), None)


def _starting_choices(program: Program) -> list[Ints]:
    """What may stay while sets are packed: nothing, or what runs if that may."""
    empty = np.full(program.configurations.jobs, -1, dtype=np.int64)
    present = program.configurations.present
    stays = bool((present >= 0).any()) and program.feasible(present)
    return [empty, present] if stays else [empty]


def _by_key(pairs: Sequence[tuple[RackFamily, Ints]]) -> dict[Hashable, ShapesOfSize]:
    """Sets of servers, each once, as shapes."""
    by_key: dict[Hashable, list[Ints]] = defaultdict(list)
    counts: dict[Hashable, int] = {}
    for sets, servers in pairs:
        by_key[sets.key].append(servers)
        counts[sets.key] = sets.size // sets.count
    distinct = {key: np.unique(np.stack(rows), axis=0) for key, rows in by_key.items()}
    return {
        key: ShapesOfSize(rows, np.full(rows.shape, counts[key])) for key, rows in distinct.items()
    }


def _with_packing(program: Program, current: Ints, packing: Sequence[PackedSet]) -> Ints:
    """``current`` with the packed sets, those worth most first, as far as they are allowed."""
    choice = current.copy()
    of_key = {sets.key: sets for sets in program.configurations.families}
    for packed_set in packing:
        sets = of_key[packed_set.sets.key]
        row = int(np.searchsorted(sets.jobs, packed_set.job))
        choice[packed_set.job] = sets.first[row] + sets.find(packed_set.servers)
    return repair(program, choice)
