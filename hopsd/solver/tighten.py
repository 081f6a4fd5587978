"""The relaxation with cuts, round by round: a tighter bound, and plans by diving in it.

Every round descends over the columns that could matter, and adds the cliques and, where cores or
memory are short, the cuts of single servers that the mean of what it chose violates most. It runs
in a child process: HiGHS, which finds cuts, could not be killed inside this one, and its crash
would be ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import reduce
from io import BytesIO
from itertools import count
from math import inf
from time import monotonic
from typing import Self
from zipfile import BadZipFile

import numpy as np

from hopsd.core.placement.program import Program
from hopsd.core.placement.shapes import ramp
from hopsd.errors import SolverError
from hopsd.model.arrays import NONE, Floats, Ints, distinct
from hopsd.solver.backend import child
from hopsd.solver.backend.diving import able_to_dive, fix_in_turn
from hopsd.solver.backend.linear import Constraints
from hopsd.solver.backend.model import Model
from hopsd.solver.backend.simplex import Simplex
from hopsd.solver.bound import clique_cuts
from hopsd.solver.bound.clique_cuts import Clique, CliqueFinder
from hopsd.solver.bound.cuts import capacity_rows
from hopsd.solver.bound.dual_prices import Prices
from hopsd.solver.bound.knapsack_cuts import Cuts, ServerParts, factors, patterns
from hopsd.solver.bound.reduced_cost import ColumnCosts, ItemPrices, prices_of_items
from hopsd.solver.bound.volume import Packing, descend
from hopsd.solver.search.dive import COLUMNS_MAX, plan_of, promising
from hopsd.solver.search.volume_dive import dive

# A server's cuts give weights to this many of its kinds at most, with so many patterns.
_KINDS_MAX, _PATTERNS_MAX = 12, 3_000
_ROUNDS, _CUTS_PER_SERVER = 40, 4
# An LP of more servers takes longer than a plan may.
_SERVERS_MAX = 400
# About so many columns take part in a round, and so many of each job at most: those with the least
# loss, up to a loss relative to value; columns of earlier rounds that lose a little more stay.
_COLUMNS, _PER_JOB, _NEAR, _STAYS = 15_000, 120, 0.1, 0.2
# Steps of a round and their pace, which slows down to its least.
_STEPS, _SLOWER, _PACE_MIN = 300, 0.85, 0.05
# The same of a dive, and columns that are chosen so often.
_PER_JOB_OF_DIVE, _NEAR_OF_DIVE, _OFTEN = 60, 0.3, 0.05
# A clique's row has a limit like a server's: the descent takes rows as they are scaled.
_OF_CLIQUE = 6.0
# Rounds between dives; where they lower the bound by less than a share of it, they are the last,
# and cuts get a share of the time.
_ROUNDS_PER_DIVE, _PROGRESS, _CUTTING = 4, 3e-4, 0.5
_VIOLATED, _USED = 1e-4, 1e-6
# Dives by linear programs after the last round; from the second on, each with other factors of the
# columns' values from 1 - so much to 1 + so much.
_LAST_DIVES, _SPREAD = 9, 0.25
# The child stops by itself a little before it is killed.
_TOLD_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class Tightened:
    """Prices that prove a bound, and a choice (jobs,), -1 for none, if one was found."""

    prices: ItemPrices
    choice: Ints | None = None


def tighten(
    program: Program, prices: Prices, value: float, gap: float, give_up: float
) -> Tightened:
    """Prices that prove a lower bound than ``prices``, and a plan; these prices alone where there
    is nothing to gain.

    Stops once a plan, or ``value``, that of one known, is within the ``gap`` or, with the best so
    far, at ``give_up`` (monotonic seconds).
    """
    with Tightening(program) as cutting:
        return _last(cutting.rounds(prices, value, gap, give_up), prices)


class Tightening:
    """:func:`tighten`, one round after the other; it goes on meanwhile, until its ``with`` ends.

    The child starts at once, and imports while prices are found.
    """

    def __init__(self, program: Program) -> None:
        columns = program.configurations
        large = len(columns.pool) > _SERVERS_MAX or columns.segments is not None
        self._program = program
        self._child = None if large else child.Child("hopsd.solver.tighten")

    def rounds(
        self, prices: Prices, value: float, gap: float, give_up: float
    ) -> Iterator[Tightened]:
        """What was found after each linear program and each dive, as it comes; to be called once.

        The work begins with the call.
        """
        seconds = give_up - monotonic()
        if self._child is None or seconds <= 0:
            return iter(())
        child_deadline = monotonic() + _TOLD_SHARE * seconds
        self._child.ask((self._program, prices, value, gap, child_deadline))
        return _decode_known(self._program, prices, self._child.answers(give_up))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._child is not None:
            self._child.end()


def _decode_known(
    program: Program, prices: Prices, records: Iterator[bytes]
) -> Iterator[Tightened]:
    for record in records:
        with suppress(ValueError, EOFError, BadZipFile, KeyError):
            yield _decode(program, prices, record)


def _decode(program: Program, prices: Prices, record: bytes) -> Tightened:
    """A record of the child, checked.

    Raises:
        ValueError: it is none; EOFError, BadZipFile and KeyError mean the same.
    """
    with np.load(BytesIO(record), allow_pickle=False) as arrays:
        column_costs = ColumnCosts(arrays["columns"], arrays["cost"])
        prices_found = prices_of_items(
            program, arrays["item"], float(arrays["capacity"]), column_costs
        )
        choice = arrays["choice"]
    feasible = choice.shape == program.weight.shape and program.feasible(choice)
    best = min(prices, prices_found, key=lambda known: known.bound)
    return Tightened(best, choice if feasible else None)


def _encode(result: Tightened) -> bytes:
    """A record of what was found so far."""
    prices, record = result.prices, BytesIO()
    np.savez(
        record,
        item=prices.item,
        columns=prices.own.columns,
        cost=prices.own.cost,
        capacity=prices.capacity,
        choice=NONE if result.choice is None else result.choice,
    )
    return record.getvalue()


def find_cuts(
    program: Program, prices: Prices, value: float, gap: float, give_up: float
) -> Tightened:
    """What :func:`tighten` returns, in this process."""
    return _last(rounds(program, prices, value, gap, give_up), prices)


def _last(results: Iterator[Tightened], prices: Prices) -> Tightened:
    return reduce(lambda _, later: later, results, Tightened(prices))


def rounds(
    program: Program, prices: Prices, value: float, gap: float, give_up: float
) -> Iterator[Tightened]:
    """The best prices and choice after each linear program and each dive; see :func:`tighten`."""
    relaxation = _Relaxation(program, prices)
    cutting = monotonic() + _CUTTING * (give_up - monotonic())
    choice, quick, exact = None, count(), count()

    def met() -> bool:
        return relaxation.best.bound <= value / (1 - gap)

    def dive(way: _Dive, dives: Iterator[int]) -> Iterator[Tightened]:
        nonlocal choice, value
        number = next(dives)
        answer = way(give_up, np.random.default_rng(number) if number else None)
        if answer is not None and program.scaled_objective(answer) > value:
            choice, value = answer, program.scaled_objective(answer)
            yield Tightened(relaxation.best, choice)

    before = inf
    for number in range(_ROUNDS):
        yield Tightened(relaxation.descend(number, value, give_up), choice)
        if number % _ROUNDS_PER_DIVE == _ROUNDS_PER_DIVE - 1 and not met():
            yield from dive(relaxation.dive, quick)
            slow = before - relaxation.best.bound < _PROGRESS * relaxation.best.bound
            before = relaxation.best.bound
            if slow:
                break
        if met() or monotonic() > cutting or not relaxation.cut(give_up):
            break
    for _ in range(_LAST_DIVES):
        if met() or monotonic() > give_up:
            break
        yield from dive(relaxation.dive_exactly, exact)


_Dive = Callable[[float, np.random.Generator | None], Ints | None]


@dataclass(slots=True)
class _Class:
    """Servers of equal capacity: what is a cut for one of them is one for all.

    ``factor``: of every cut found, (kinds,) each.
    """

    servers: Ints
    kinds: Ints
    factor: list[Floats] = field(default_factory=list)
    known: set[bytes] = field(default_factory=set)


class _Relaxation:
    """The relaxation with all cuts so far, over some of the columns."""

    def __init__(self, program: Program, prices: Prices) -> None:
        self._program, self._rows = program, capacity_rows(program)
        self._parts = parts = ServerParts.of(program)
        self._cuts = Cuts.none(len(parts.weight))
        self.best: ItemPrices = prices
        # The prices of the last round, and those of its rows.
        self._last: ItemPrices = prices
        self._price = prices.row
        self._active, self._x = NONE, np.zeros(0)
        of_class = np.unique(parts.capacity, axis=0, return_inverse=True)[1].ravel()
        self._classes = []
        for number in range(int(of_class.max(initial=-1)) + 1):
            kinds = np.unique(parts.kind[of_class[parts.server] == number])
            self._classes.append(_Class(np.flatnonzero(of_class == number), kinds))
        # Of every cut: its class, its server and its number in the class.
        self._keys: list[tuple[int, int, int]] = []
        self._finder = CliqueFinder(program)
        self._cliques: list[Clique] = []

    def descend(self, number: int, floor: float, give_up: float) -> ItemPrices:
        """The best prices after the ``number``-th round, towards the value ``floor`` of a plan."""
        self._active = self._columns()
        packing = self._packing(self._active)
        pace = max(_PACE_MIN, _SLOWER**number)
        descent = descend(packing, self._price, floor, _STEPS, pace, give_up)
        points = [(self._prices(row), row) for row in (descent.prices, descent.mean)]
        self._last, self._price = min(points, key=lambda point: point[0].bound)
        self._x = descent.x
        self.best = min(self.best, self._last, key=lambda known: known.bound)
        return self.best

    def _columns(self) -> Ints:
        """The columns of the next round, sorted."""
        program, best = self._program, self.best
        near = np.concatenate([NONE, *self._last.near(program, relative=_NEAR)])
        near = _few_of_each(program, self._last, near, _PER_JOB)
        losses = best.loss(program, self._active)
        stays = losses <= _STAYS * program.value[self._active]
        return distinct(self._active[stays], near)

    def _packing(self, columns: Ints) -> Packing:
        """The relaxation over ``columns`` (sorted)."""
        job = self._program.configurations.jobs_of(columns)
        return Packing.of(self._program.value[columns], job, self._entries(columns), self._limits())

    def _prices(self, row: Floats) -> ItemPrices:
        """What follows from the prices ``row`` of all rows."""
        rows, cuts = self._rows, self._cuts
        first = len(rows.limit)
        of_rows, of_cuts, of_cliques = np.split(row, [first, first + len(cuts.limit)])
        of_cliques = _OF_CLIQUE * of_cliques
        item, clique_costs = clique_cuts.costs(self._cliques, of_cliques, len(rows.start) - 1)
        item += rows.cost(of_rows)
        of_parts = cuts.costs(self._parts, of_cuts)
        item[: len(of_parts)] += of_parts
        capacity = float(of_rows @ rows.limit + of_cuts @ cuts.limit + of_cliques.sum())
        return prices_of_items(self._program, item, capacity, clique_costs)

    def _limits(self) -> Floats:
        """The limits of the rows: the program's with their cuts, servers' cuts, cliques."""
        cliques = np.full(len(self._cliques), _OF_CLIQUE)
        return np.concatenate([self._rows.limit, self._cuts.limit, cliques])

    def _entries(self, columns: Ints) -> tuple[Ints, Ints, Floats]:
        """Columns (positions), rows and amounts of the matrix over ``columns`` (sorted)."""
        program, rows, cuts = self._program, self._rows, self._cuts
        count = len(columns)
        items = program.items(columns)
        lengths = rows.start[items + 1] - rows.start[items]
        positions = np.repeat(rows.start[items], lengths) + ramp(lengths)
        column_of = np.repeat(np.arange(len(items)) % max(1, count), lengths)
        holder, part = self._parts_of(columns)
        server, kind = self._parts.server[part], self._parts.kind[part]
        first = np.searchsorted(cuts.server, server)
        several = np.searchsorted(cuts.server, server, side="right") - first
        cut_rows = np.repeat(first, several) + ramp(several)
        factor = cuts.factor[cut_rows, np.repeat(kind, several)]
        inside, clique = clique_cuts.entries(self._cliques, program, columns)
        offset = len(rows.limit)
        column = np.concatenate([column_of, np.repeat(holder, several), inside])
        row = [rows.row[positions], offset + cut_rows, offset + len(cuts.limit) + clique]
        of_cliques = np.full(len(inside), _OF_CLIQUE)
        amount = np.concatenate([rows.amount[positions], factor, of_cliques])
        used = amount > 0.0
        return column[used], np.concatenate(row)[used], amount[used]

    def _parts_of(self, columns: Ints) -> tuple[Ints, Ints]:
        """The positions among ``columns`` of those that have each part, and the part."""
        items = self._program.configurations.shape[columns].astype(np.int64)
        holder, entry = self._parts.entries(items)
        return holder, self._parts.part[entry]

    def dive(self, give_up: float, rng: np.random.Generator | None = None) -> Ints:
        """A choice (jobs,) by diving; with ``rng`` another one each time."""
        near = np.concatenate([NONE, *self.best.near(self._program, relative=_NEAR_OF_DIVE)])
        columns = _few_of_each(self._program, self.best, near, _PER_JOB_OF_DIVE)
        columns = distinct(columns, self._active[self._x > _OFTEN])
        return dive(self._program, columns, self._packing(columns), self._price, give_up, rng)

    def dive_exactly(self, give_up: float, rng: np.random.Generator | None = None) -> Ints | None:
        """:meth:`dive` by linear programs, which is better and slower; None without ``highspy``, or
        if they are too large.
        """
        program, jobs = self._program, self._program.configurations.jobs
        used = self._active[self._x > _USED]
        columns_tried, likely = promising(program, self.best)
        columns = np.union1d(used, columns_tried)
        if not able_to_dive() or len(columns) > COLUMNS_MAX:
            return None
        column, row, amount = self._entries(columns)
        job = program.configurations.jobs_of(columns)
        column = np.concatenate([np.arange(len(columns)), column])
        distinct_rows, row = np.unique(np.concatenate([job, jobs + row]), return_inverse=True)
        amount = np.concatenate([np.ones(len(columns)), amount])
        order = np.argsort(column, kind="stable")
        start = np.searchsorted(column[order], np.arange(len(columns) + 1))
        value = program.value[columns] / float(program.value.max())
        limit = np.concatenate([np.ones(jobs), self._limits()])[distinct_rows]
        model = Model(value, start, row[order], amount[order], limit, np.ones(len(columns)))
        likely = np.isin(columns, np.union1d(used, columns_tried[likely]))
        liking = None
        if rng is not None:
            liking = rng.uniform(1 - _SPREAD, 1 + _SPREAD, len(columns))
        x = fix_in_turn(model, likely, give_up, liking)
        return plan_of(program, columns, x) if model.holds(x) else None

    def cut(self, give_up: float) -> bool:
        """Add cuts that the mean choice violates; returns whether there are any."""
        cliques = self._finder.find(self._active, self._x, give_up)
        self._cliques += cliques
        self._price = np.append(self._price, np.zeros(len(cliques)))
        added = bool(cliques)
        if self._program.configurations.short_of_more_than_gpus:
            with suppress(SolverError):
                added |= self._cut_knapsacks(give_up)
        return added

    def _cut_knapsacks(self, give_up: float) -> bool:
        """Add cuts of servers, without those that no longer bind; returns whether there are any."""
        holder, part = self._parts_of(self._active)
        parts = self._parts
        load = np.zeros((len(parts.capacity), len(parts.weight)))
        np.add.at(load, (parts.server[part], parts.kind[part]), self._x[holder])
        self._find(load, give_up)
        first = len(self._rows.limit)
        price = self._price[first : first + len(self._cuts.limit)]
        binding = np.flatnonzero(price > 0.0)
        keys = [self._keys[cut_index] for cut_index in binding.tolist()]
        present, server, factor = set(keys), [], []
        for number, group in enumerate(self._classes):
            if not group.factor:
                continue
            factors = np.array(group.factor)
            excess = load[group.servers] @ factors.T
            for server_index, violations in zip(group.servers.tolist(), excess, strict=True):
                for best in np.argsort(-violations, kind="stable")[:_CUTS_PER_SERVER].tolist():
                    key = number, server_index, best
                    if violations[best] > 1 + _VIOLATED and key not in present:
                        keys.append(key)
                        server.append(server_index)
                        factor.append(factors[best])
        if not server:
            return False
        # In units of the server's GPUs, like every other row.
        server_index = np.array(server)
        unit = np.maximum(1, parts.capacity[server_index, 0]).astype(np.float64)
        new = Cuts(server_index, np.array(factor) * unit[:, None], unit)
        self._cuts, order = Cuts.joined(self._cuts.some(binding), new)
        self._keys = [keys[cut_index] for cut_index in order.tolist()]
        of_cuts = np.append(price[binding], np.zeros(len(server)))[order]
        of_cliques = self._price[first + len(price) :]
        self._price = np.concatenate([self._price[:first], of_cuts, of_cliques])
        return True

    def _find(self, load: Floats, give_up: float) -> None:
        """Cuts that servers violate: weights of kinds with the largest sum over what is ``load``,
        such that no pattern weighs more than 1; one LP for all servers.
        """
        weight, capacity = self._parts.weight, self._parts.capacity
        groups: list[tuple[_Class, Ints, Ints]] = []
        row, column, value, gain = [], [], [], []
        rows = columns = 0
        for group in self._classes:
            for server in group.servers.tolist():
                kinds = np.flatnonzero((load[server] > _USED) & (weight[:, 0] > 0))
                if not len(kinds):
                    continue
                by_size = np.argsort(-load[server, kinds] * weight[kinds, 0], kind="stable")
                kinds = kinds[by_size[:_KINDS_MAX]]
                group_patterns = patterns(weight[kinds], capacity[server], _PATTERNS_MAX)
                while group_patterns is None:
                    kinds = kinds[:-1]
                    group_patterns = patterns(weight[kinds], capacity[server], _PATTERNS_MAX)
                rows_of_pattern, kind = np.nonzero(group_patterns)
                row.append(rows + rows_of_pattern)
                column.append(columns + kind)
                value.append(group_patterns[rows_of_pattern, kind].astype(np.float64))
                gain.append(load[server, kinds])
                rows, columns = rows + len(group_patterns), columns + len(kinds)
                groups.append((group, kinds, group_patterns))
        if not groups:
            return
        constraints = Constraints(
            np.concatenate(row), np.concatenate(column), np.concatenate(value), np.ones(rows)
        )
        best = Simplex().minimise(
            -np.concatenate(gain), constraints, range(columns), range(rows), give_up - monotonic()
        )
        if best is None:
            return
        first = 0
        for (group, kinds, group_patterns), gains in zip(groups, gain, strict=True):
            alpha = best.x[first : first + len(kinds)]
            first += len(kinds)
            values = group_patterns @ alpha
            maximum = float(values.max())
            if alpha @ gains <= (1 + _VIOLATED) * maximum:
                continue
            factor = np.zeros(len(weight))
            values = values / maximum
            factor[group.kinds] = factors(
                values, group_patterns @ weight[kinds], weight[group.kinds]
            )
            key = np.round(factor, 9).tobytes()
            if key not in group.known:
                group.known.add(key)
                group.factor.append(factor)


def _few_of_each(program: Program, prices: ItemPrices, columns: Ints, most: int) -> Ints:
    """Of ``columns`` (sorted) up to ``most`` of each job, those with the least loss; fewer where
    they would be too many.
    """
    job = program.configurations.jobs_of(columns)
    most = min(most, _COLUMNS // max(1, np.count_nonzero(prices.job)))
    order = np.lexsort((prices.loss(program, columns), job))
    rank = np.arange(len(order)) - np.searchsorted(job, job[order])
    return np.sort(columns[order[rank < max(1, most)]])


if __name__ == "__main__":
    for tightened in rounds(*child.question()):
        child.answer(_encode(tightened))
