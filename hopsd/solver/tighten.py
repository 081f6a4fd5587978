"""Solve the relaxation as an LP with cuts, round by round, for a tighter bound; dive for a plan.

Every round solves the LP over the columns that could matter, then adds the cliques that its
solution violates most and, where cores or memory are short, the cuts of single servers. With those
cuts an LP takes seconds, so rounds take steps towards its solution instead
(:mod:`hopsd.solver.bound.primal_dual`). The work runs in a child process: HiGHS in this process
could not be killed, and its crash would be ours.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial, reduce
from io import BytesIO
from itertools import compress
from math import inf
from time import monotonic
from typing import Self

import numpy as np

from hopsd.core.placement.program import Program
from hopsd.core.placement.shapes import ramp
from hopsd.errors import SolverError
from hopsd.model.arrays import NONE, Floats, Ints, distinct
from hopsd.solver.backend import child
from hopsd.solver.backend.diving import able_to_dive, fix_in_turn
from hopsd.solver.backend.integer_program import Model
from hopsd.solver.backend.linear import Constraints
from hopsd.solver.backend.simplex import Simplex
from hopsd.solver.bound import clique_cuts
from hopsd.solver.bound.clique_cuts import CliqueFinder, UnitCut
from hopsd.solver.bound.cuts import capacity_rows
from hopsd.solver.bound.dual_prices import Prices, prices_at
from hopsd.solver.bound.knapsack_cuts import Cuts, ServerParts, are_full, factors, patterns
from hopsd.solver.bound.primal_dual import Packing, approach
from hopsd.solver.bound.reduced_cost import ColumnCosts, ItemPrices, prices_of_items
from hopsd.solver.job_cuts import JobCutFinder
from hopsd.solver.search.dive import MAX_COLUMNS, plan_of, promising_columns
from hopsd.solver.search.greedy import fill_idle
from hopsd.solver.search.primal_dual_dive import dive
from hopsd.solver.search.remaining import remaining

# A server's cuts weigh at most this many of its kinds, which form at most this many patterns.
_MAX_KINDS, _MAX_PATTERNS = 12, 3_000
_ROUNDS, _CUTS_PER_SERVER = 20, 4
# An LP of more servers takes longer than a plan may.
_MAX_SERVERS = 400
# The loss relative to value up to which columns are in the first LP; how many are added at once,
# and how often.
_NEAR_SHARE, _MORE_COLUMNS, _PRICINGS = 0.03, 1_500, 2
# Steps from the best prices known towards those of an LP.
_STEPS = (1.0, 0.5, 0.25, 0.1)
# Relative: a bound this close to the LP's value counts as equal to it.
_CLOSE = 2e-4
# For each dive, the relative progress below which a round is the last before it, once the bound is
# this close (relative) to the LP's; and the share of the time for cuts, after which the first dive
# comes at the latest.
_PROGRESS, _REACHED_SHARE, _CUT_TIME_SHARE = (5e-4, 1e-4), 2e-3, 0.5
_MIN_VIOLATION, _POSITIVE = 1e-4, 1e-6
# Cliques grow from columns with at least this share: steps give many others a tiny one.
_IN_CLIQUE = 0.02
# A round of steps takes about this many columns, and at most the second number for each job: those
# with the least loss, up to a loss relative to value. Columns of earlier rounds stay up to the
# last, larger loss.
_COLUMNS, _PER_JOB, _NEAR_OF_ROUND, _STAYS = 15_000, 120, 0.3, 0.6
# The same for a dive, which also takes all columns with more than this share.
_PER_JOB_OF_DIVE, _NEAR_OF_DIVE, _FREQUENT_SHARE = 60, 0.3, 0.05
# Steps between cuts.
_STEPS_OF_ROUND = 600
# Clique rows are scaled to a limit like a server's, since steps depend on the rows' scale.
_OF_CLIQUE = 6.0
# The most rounds of steps, and how many of them come between dives. Rounds end once those between
# two dives lower the bound by less than this share of it, or if the same progress this many times
# more would not meet the gap.
_ROUNDS_OF_STEPS, _PER_DIVE, _SLOW, _MORE = 40, 4, 3e-4, 10
# Servers' cuts are those of kinds, which servers share, until a round lowers the bound by less than
# this share of it; then cuts of jobs join them. Cliques wait as long if there are more columns than
# this: there they take longer than all else in a round.
_SLOW_BY_KINDS, _MANY_COLUMNS = 1.5e-3, 200_000
# A dive takes this share of the idle GPUs, then some rounds of cuts follow in what remains, and so
# on until fewer columns than this remain: cuts of whole servers say little about what is left.
_DIVE_SHARE, _ROUNDS_OF_REST, _SMALL_REST = 0.5, 4, 500
# The number of further dives, at the last prices; the columns' values get random factors within
# 1 ± this spread. Dives between rounds need none: other prices give other plans, and better ones.
_OTHER_DIVES, _SPREAD = 8, 0.25
# The child stops by itself a little before it is killed.
_TOLD_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class TightenResult:
    """Prices that prove a bound, and a choice (jobs,), -1 for none, if one was found."""

    prices: ItemPrices
    choice: Ints | None = None


def tighten(
    program: Program,
    prices: Prices,
    value: float,
    gap: float,
    give_up: float,
    enough: float = inf,
) -> TightenResult:
    """Return prices that prove a tighter bound and, if one was found, a better plan; ``prices``
    alone if there is nothing to gain.

    Stops once a plan, or the known one worth ``value``, is within the ``gap`` or worth ``enough``;
    at ``give_up`` (monotonic seconds) returns the best so far.
    """
    with Tightening(program) as tightener:
        return _last(tightener.rounds(prices, value, gap, give_up, enough), prices)


class Tightening:
    """:func:`tighten` round by round in the background, until the ``with`` block ends.

    The child starts at once, and imports its modules while prices are found.
    """

    def __init__(self, program: Program) -> None:
        columns = program.configurations
        large = len(columns.pool) > _MAX_SERVERS or columns.segments is not None
        self._program = program
        self._child = None if large else child.Child("hopsd.solver.tighten")

    def rounds(
        self,
        prices: Prices,
        value: float,
        gap: float,
        give_up: float,
        enough: float = inf,
    ) -> Iterator[TightenResult]:
        """Start the work; yield the result after each linear program and each dive. Call once."""
        seconds = give_up - monotonic()
        if self._child is None or seconds <= 0:
            return iter(())
        child_deadline = monotonic() + _TOLD_SHARE * seconds
        self._child.ask((self._program, prices, value, gap, child_deadline, enough))
        return _decode_known(self._program, prices, self._child.answers(give_up))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._child is not None:
            self._child.end()


def _decode_known(
    program: Program, prices: Prices, records: Iterator[bytes]
) -> Iterator[TightenResult]:
    return child.decoded(records, partial(_decode, program, prices))


def _decode(program: Program, prices: Prices, record: bytes) -> TightenResult:
    """Decode and check a record of the child.

    Raises:
        child.MALFORMED: the record is malformed.
    """
    with np.load(BytesIO(record), allow_pickle=False) as arrays:
        column_costs = ColumnCosts(arrays["columns"], arrays["cost"])
        prices_found = prices_of_items(
            program, arrays["item"], float(arrays["capacity"]), column_costs
        )
        choice = arrays["choice"]
    feasible = choice.shape == program.weight.shape and program.feasible(choice)
    best = min(prices, prices_found, key=lambda candidate: candidate.bound)
    return TightenResult(best, choice if feasible else None)


def _encode(result: TightenResult) -> bytes:
    """Encode the result so far as a record."""
    prices, record = result.prices, BytesIO()
    np.savez(
        record,
        item=prices.item,
        columns=prices.column_costs.columns,
        cost=prices.column_costs.cost,
        capacity=prices.capacity,
        choice=NONE if result.choice is None else result.choice,
    )
    return record.getvalue()


def find_cuts(
    program: Program, prices: Prices, value: float, gap: float, give_up: float
) -> TightenResult:
    """Compute what :func:`tighten` returns, but in this process."""
    return _last(rounds(program, prices, value, gap, give_up), prices)


def _last(results: Iterator[TightenResult], prices: Prices) -> TightenResult:
    return reduce(lambda _, later: later, results, TightenResult(prices))


def rounds(
    program: Program,
    prices: Prices,
    value: float,
    gap: float,
    give_up: float,
    enough: float = inf,
) -> Iterator[TightenResult]:
    """Yield the best prices and choice after each linear program or round of steps, and after each
    dive; see :func:`tighten`.
    """
    columns = program.configurations
    if columns.short_of_more_than_gpus:
        by_steps = PrimalDual(program, prices)
        for _ in rounds_by_steps(by_steps, value, gap, give_up, enough):
            yield TightenResult(by_steps.best, by_steps.choice)
        return
    relaxation = _Relaxation(program, prices)
    cut_deadline = monotonic() + _CUT_TIME_SHARE * (give_up - monotonic())
    choice = None

    def is_met() -> bool:
        return value >= min(enough, (1 - gap) * relaxation.best.bound)

    def dive(rng: np.random.Generator | None = None) -> Iterator[TightenResult]:
        nonlocal choice, value
        answer = relaxation.dive(give_up, rng)
        if answer is not None and program.scaled_objective(answer) > value:
            choice, value = answer, program.scaled_objective(answer)
            yield TightenResult(relaxation.best, choice)

    for progress in _PROGRESS:
        if not is_met():
            for best in relaxation.tighten(value / (1 - gap), progress, cut_deadline):
                yield TightenResult(best, choice)
        if is_met():
            break
        yield from dive()
    for number in range(_OTHER_DIVES):
        if is_met() or monotonic() > cut_deadline:
            break
        yield from dive(np.random.default_rng(number))


def rounds_by_steps(
    relaxation: PrimalDual, value: float, gap: float, give_up: float, enough: float = inf
) -> Iterator[None]:
    """Yield after each round of steps, and after each dive that finds a better choice than those
    before, the known one worth ``value`` included.
    """
    before, has_dived = inf, False
    first_dive_due = monotonic() + _CUT_TIME_SHARE * (give_up - monotonic())

    def met() -> bool:
        return value >= min(enough, (1 - gap) * relaxation.bound)

    def dive(rng: np.random.Generator | None = None) -> bool:
        nonlocal value, has_dived
        has_dived = True
        choice = relaxation.dive_by_steps(give_up, rng)
        objective = relaxation.program.scaled_objective(choice)
        if objective <= value:
            return False
        relaxation.choice, value = choice, objective
        return True

    for number in range(_ROUNDS_OF_STEPS):
        relaxation.go_on(give_up)
        yield
        is_due = not has_dived and monotonic() > first_dive_due
        if (is_due or number % _PER_DIVE == _PER_DIVE - 1) and not met():
            if dive():
                yield
            bound = relaxation.bound
            progress, before = before - bound, bound
            if progress < _SLOW * bound or _MORE * progress < bound - value / (1 - gap):
                break
        if met() or monotonic() > give_up or not relaxation.cut(give_up):
            break
    for number in range(_OTHER_DIVES):
        if met() or monotonic() > give_up:
            break
        if dive(np.random.default_rng(number)):
            yield


@dataclass(slots=True)
class _Class:
    """Servers of equal capacity: a cut for one of them is a cut for all.

    ``factor`` holds the factors of every cut found, (kinds,) each.
    """

    servers: Ints
    kinds: Ints
    factor: list[Floats] = field(default_factory=list)
    cut_keys: set[bytes] = field(default_factory=set)


class _Relaxation:
    """The LP with all cuts so far, over some of the columns."""

    def __init__(self, program: Program, prices: Prices) -> None:
        self._use(program)
        parts = self._parts
        self._cuts = Cuts.empty(len(parts.weight))
        self._scale = float(program.value.max())
        self.best: ItemPrices = prices
        self._active = np.concatenate([NONE, *prices.near(program, relative=_NEAR_SHARE)])
        self._x = np.zeros(0)
        server_class = np.unique(parts.capacity, axis=0, return_inverse=True)[1].ravel()
        self._classes = []
        for number in range(int(server_class.max(initial=-1)) + 1):
            kinds = np.unique(parts.kind[server_class[parts.server] == number])
            self._classes.append(_Class(np.flatnonzero(server_class == number), kinds))
        # The class, the server and the number in the class of every cut.
        self._keys: list[tuple[int, int, int]] = []
        self._price = np.zeros(0)
        self._finder, self._job_finders = CliqueFinder(program), [JobCutFinder.of_limits(program)]
        self._unit_cuts: list[UnitCut] = []
        # Whether cliques wait: servers' cuts of kinds lower the bound fast enough without them.
        self._are_kinds_enough = False
        self._simplex = Simplex()

    def _use(self, program: Program) -> None:
        """Take the rows, the servers' parts and the columns' jobs of ``program``."""
        self._program, self._rows = program, capacity_rows(program)
        self._parts = ServerParts.from_program(program)
        self._job = program.configurations.job_of_column()

    def tighten(self, target: float, progress: float, give_up: float) -> Iterator[ItemPrices]:
        """Solve and cut until the ``target`` is proven or, at the LP's own value, a round lowers
        the bound by less than ``progress`` of it. Yields the best prices after each LP.
        """
        before = np.inf
        try:
            for _ in range(_ROUNDS):
                value = yield from self._solve(give_up)
                bound = self.best.bound
                slow = before - bound < progress * bound and bound - value < _REACHED_SHARE * bound
                before = bound
                if bound <= target or slow or monotonic() > give_up or not self._add_cuts(give_up):
                    break
        except SolverError:
            pass

    def _solve(self, give_up: float) -> Generator[ItemPrices, None, float]:
        """Find better prices than the best so far while columns with a profit are added. Yields the
        best prices after each LP and returns the last LP's value.

        Few columns are added a round, and the prices of an LP without the others are far off. The
        bound is convex, so it is lower on the way from the best known prices towards the LP's
        (smoothing: Wentges, Int. Trans. Oper. Res. 4, 1997).
        """
        program, value = self._program, -np.inf
        for _ in range(_PRICINGS):
            value, job, duals = self._solve_lp(give_up)
            steps = [_interpolate(program, self.best, duals, share) for share in _STEPS]
            self.best = min(self.best, *steps, key=lambda candidate: candidate.bound)
            yield self.best
            if self.best.bound - value <= _CLOSE * value:
                break
            profit = duals.profit(program, slice(0, len(program.value))) - job[self._job]
            candidates = np.flatnonzero(profit > _POSITIVE * self._scale)
            if len(candidates) > _MORE_COLUMNS:
                relative = profit[candidates] / program.value[candidates]
                candidates = candidates[np.argpartition(-relative, _MORE_COLUMNS)[:_MORE_COLUMNS]]
            candidates = np.setdiff1d(candidates, self._active)
            if not len(candidates) or monotonic() > give_up:
                break
            columns = np.union1d(self._active, candidates)
            x = np.zeros(len(columns))
            x[np.searchsorted(columns, self._active)] = self._x
            self._active, self._x = columns, x
        return value

    def _solve_lp(self, give_up: float) -> tuple[float, Floats, ItemPrices]:
        """Solve the LP over the active columns: its value, and the prices of jobs and items."""
        program, rows, cuts = self._program, self._rows, self._cuts
        jobs, active = program.configurations.jobs, self._active
        column, row, amount = self._entries(active)
        distinct_rows, row = np.unique(row, return_inverse=True)
        limit = self._limits()
        constraints = Constraints(row, column, amount, limit[distinct_rows])
        offset = jobs + len(rows.limit)
        cliques = [(number,) for number in range(len(self._unit_cuts))]
        keys: list[tuple[int, ...]] = [*self._keys, *cliques]
        labels = [r if r < offset else keys[r - offset] for r in distinct_rows.tolist()]
        solution = self._simplex.minimise(
            -program.value[active] / self._scale,
            constraints,
            active.tolist(),
            labels,
            give_up - monotonic(),
        )
        if solution is None:
            raise SolverError("a capacity is below 0")
        price = np.zeros(len(limit))
        price[distinct_rows] = np.maximum(solution.prices, 0.0) * self._scale
        job_prices, row_prices, cut_prices, unit_cut_prices = np.split(
            price, [jobs, offset, offset + len(cuts.limit)]
        )
        self._price = cut_prices
        self._x = solution.x
        prices = self._item_prices(row_prices, cut_prices, unit_cut_prices)
        return -solution.objective * self._scale, job_prices, prices

    def _item_prices(
        self, row_prices: Floats, cut_prices: Floats, unit_cut_prices: Floats
    ) -> ItemPrices:
        """Return the items' prices that follow from those of rows, cuts and cliques."""
        rows, cuts = self._rows, self._cuts
        item, clique_costs = clique_cuts.costs(
            self._unit_cuts, unit_cut_prices, len(rows.start) - 1
        )
        item += rows.cost(row_prices)
        part_costs = cuts.costs(self._parts, cut_prices)
        item[: len(part_costs)] += part_costs
        capacity = float(row_prices @ rows.limit + cut_prices @ cuts.limit + unit_cut_prices.sum())
        return prices_of_items(self._program, item, capacity, clique_costs)

    def _limits(self) -> Floats:
        """The limits of the LP's rows: jobs, the program's rows and their cuts, servers' cuts,
        cliques.
        """
        jobs, cliques = self._program.configurations.jobs, len(self._unit_cuts)
        parts = np.ones(jobs), self._rows.limit, self._cuts.limit, np.ones(cliques)
        return np.concatenate(parts)

    def _entries(self, columns: Ints) -> tuple[Ints, Ints, Floats]:
        """Columns (positions), rows and amounts of the LP's matrix over ``columns`` (sorted)."""
        program, rows, cuts = self._program, self._rows, self._cuts
        jobs, count = program.configurations.jobs, len(columns)
        items = program.items(columns)
        lengths = rows.start[items + 1] - rows.start[items]
        positions = np.repeat(rows.start[items], lengths) + ramp(lengths)
        column_of = np.repeat(np.arange(len(items)) % count, lengths)
        holder, part = self._parts_of(columns)
        server, kind = self._parts.server[part], self._parts.kind[part]
        first = np.searchsorted(cuts.server, server)
        several = np.searchsorted(cuts.server, server, side="right") - first
        cut_rows = np.repeat(first, several) + ramp(several)
        factor = cuts.factor[cut_rows, np.repeat(kind, several)]
        inside, clique, inside_factor = clique_cuts.entries(self._unit_cuts, program, columns)
        offset = jobs + len(rows.limit)
        column = np.concatenate([np.arange(count), column_of, np.repeat(holder, several), inside])
        row = [self._job[columns], jobs + rows.row[positions], offset + cut_rows]
        row.append(offset + len(cuts.limit) + clique)
        amount = np.concatenate([np.ones(count), rows.amount[positions], factor, inside_factor])
        is_positive = amount > 0.0
        return column[is_positive], np.concatenate(row)[is_positive], amount[is_positive]

    def _parts_of(self, columns: Ints) -> tuple[Ints, Ints]:
        """Pairs of a position in ``columns`` and a part that the column there has."""
        items = self._program.configurations.shape[columns].astype(np.int64)
        holder, entry = self._parts.entries(items)
        return holder, self._parts.part[entry]

    def dive(self, give_up: float, rng: np.random.Generator | None = None) -> Ints | None:
        """Return a choice (jobs,) by diving in the LP; None if it is too large or without
        ``highspy``. With ``rng`` each dive makes another choice.
        """
        program = self._program
        positive_columns = self._active[self._x > _POSITIVE]
        columns_tried, likely = promising_columns(program, self.best)
        columns = np.union1d(positive_columns, columns_tried)
        if not able_to_dive() or len(columns) > MAX_COLUMNS:
            return None
        column, row, amount = self._entries(columns)
        distinct_rows, row = np.unique(row, return_inverse=True)
        order = np.argsort(column, kind="stable")
        start = np.searchsorted(column[order], np.arange(len(columns) + 1))
        value, upper = program.value[columns] / self._scale, np.ones(len(columns))
        model = Model(value, start, row[order], amount[order], self._limits()[distinct_rows], upper)
        likely = np.isin(columns, np.union1d(positive_columns, columns_tried[likely]))
        preference = None
        if rng is not None:
            preference = rng.uniform(1 - _SPREAD, 1 + _SPREAD, len(columns))
        x = fix_in_turn(model, likely, give_up, preference)
        return plan_of(program, columns, x) if model.holds(x) else None

    def _add_cuts(self, give_up: float) -> bool:
        """Add cuts that the LP's solution violates; returns whether there are any."""
        short = self._program.configurations.short_of_more_than_gpus
        has_new, new = short and self._cut_knapsacks(give_up), []
        if not (has_new and self._are_kinds_enough):
            amounts = np.where(self._x >= _IN_CLIQUE, self._x, 0.0)
            new += self._finder.find(self._active, amounts, give_up)
        keys = {cut.key for cut in self._unit_cuts if cut.factor is not None}
        for finder in self._job_finders:
            found = finder.find(self._active, self._x, give_up)
            new += [cut for cut in found if cut.key not in keys]
        self._unit_cuts += new
        return has_new or bool(new)

    def _cut_knapsacks(self, give_up: float) -> bool:
        """Add cuts of servers and drop those that no longer bind; returns whether any are new."""
        holder, part = self._parts_of(self._active)
        parts = self._parts
        load = np.zeros((len(parts.capacity), len(parts.weight)))
        np.add.at(load, (parts.server[part], parts.kind[part]), self._x[holder])
        self._find(load, give_up)
        binding = np.flatnonzero(self._price > 0.0)
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
                    if violations[best] > 1 + _MIN_VIOLATION and key not in present:
                        keys.append(key)
                        server.append(server_index)
                        factor.append(factors[best])
        if not server:
            return False
        # In units of the server's GPUs, like every other row.
        server_index = np.array(server)
        unit = np.maximum(1, parts.capacity[server_index, 0]).astype(np.float64)
        new = Cuts(server_index, np.array(factor) * unit[:, None], unit)
        self._cuts, order = Cuts.join(self._cuts.select(binding), new)
        self._keys = [keys[cut_index] for cut_index in order.tolist()]
        return True

    def _find(self, load: Floats, give_up: float) -> None:
        """Find cuts that servers violate, by one LP for all servers: weights of kinds such that no
        pattern weighs more than 1 and the ``load`` weighs as much as possible.
        """
        weight, capacity = self._parts.weight, self._parts.capacity
        groups: list[tuple[_Class, Ints, Ints]] = []
        row, column, value, gain = [], [], [], []
        rows = columns = 0
        for group in self._classes:
            for server in group.servers.tolist():
                kinds = np.flatnonzero((load[server] > _POSITIVE) & (weight[:, 0] > 0))
                if not len(kinds):
                    continue
                by_size = np.argsort(-load[server, kinds] * weight[kinds, 0], kind="stable")
                kinds = kinds[by_size[:_MAX_KINDS]]
                group_patterns = patterns(weight[kinds], capacity[server], _MAX_PATTERNS)
                while group_patterns is None:
                    kinds = kinds[:-1]
                    group_patterns = patterns(weight[kinds], capacity[server], _MAX_PATTERNS)
                # Part of a pattern is never worth more than the whole pattern.
                largest = group_patterns[are_full(group_patterns, weight[kinds], capacity[server])]
                rows_of_pattern, kind = np.nonzero(largest)
                row.append(rows + rows_of_pattern)
                column.append(columns + kind)
                value.append(largest[rows_of_pattern, kind].astype(np.float64))
                gain.append(load[server, kinds])
                rows, columns = rows + len(largest), columns + len(kinds)
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
            if alpha @ gains <= (1 + _MIN_VIOLATION) * maximum:
                continue
            factor = np.zeros(len(weight))
            values = values / maximum
            factor[group.kinds] = factors(
                values, group_patterns @ weight[kinds], weight[group.kinds]
            )
            key = np.round(factor, 9).tobytes()
            if key not in group.cut_keys:
                group.cut_keys.add(key)
                group.factor.append(factor)


class PrimalDual(_Relaxation):
    """The relaxation with all cuts so far, solved by steps in place of linear programs."""

    def __init__(self, program: Program, prices: Prices) -> None:
        super().__init__(program, prices)
        self._active, self._are_kinds_enough = NONE, len(program.value) > _MANY_COLUMNS
        # The prices of the last round: of items, and of the rows, cuts and cliques.
        self._last: ItemPrices = prices
        self._row = prices.row
        self.choice: Ints | None = None

    @property
    def program(self) -> Program:
        """The program whose columns ``choice`` (jobs,), the best one of all dives, numbers."""
        return self._program

    @property
    def bound(self) -> float:
        """The bound that has been proven."""
        return self.best.bound

    def go_on(self, give_up: float) -> ItemPrices:
        """Take more steps and return the best prices so far."""
        columns = self._columns()
        x, self._active = self._solution(columns), columns
        saddle = approach(self._packing(columns), self._row, x, _STEPS_OF_ROUND, give_up)
        self._last, self._row, self._x = self._prices(saddle.prices), saddle.prices, saddle.x
        before, self.best = self.best, min(self.best, self._last, key=lambda prices: prices.bound)
        is_slow = before.bound - self.best.bound < _SLOW_BY_KINDS * before.bound
        if self._keys and is_slow and len(self._job_finders) == 1:
            self._are_kinds_enough = False
            self._job_finders.append(JobCutFinder.of_servers(self._program))
        return self.best

    def cut(self, give_up: float) -> bool:
        """Add cuts that the mean choice violates; returns whether there are any."""
        first = len(self._rows.limit)
        row_prices, self._price, unit_cut_prices = np.split(
            self._row, [first, first + len(self._cuts.limit)]
        )
        # Cliques stay, since each is found only once.
        binding = unit_cut_prices > _POSITIVE * self._scale
        is_clique = np.array([cut.factor is None for cut in self._unit_cuts], dtype=np.bool_)
        keep = binding | is_clique
        unit_cut_prices = unit_cut_prices[keep]
        self._unit_cuts = list(compress(self._unit_cuts, keep))
        unit_cuts = len(self._unit_cuts)
        price_of = dict(zip(self._keys, self._price.tolist(), strict=True))
        has_new_cuts = False
        with suppress(SolverError):
            has_new_cuts = self._add_cuts(give_up)
        cut_prices = np.array([price_of.get(key, 0.0) for key in self._keys])
        new_unit_cut_prices = np.zeros(len(self._unit_cuts) - unit_cuts)
        self._row = np.concatenate([row_prices, cut_prices, unit_cut_prices, new_unit_cut_prices])
        return has_new_cuts or len(self._unit_cuts) > unit_cuts

    def dive_by_steps(self, give_up: float, rng: np.random.Generator | None = None) -> Ints:
        """Return a choice (jobs,) by diving, with idle GPUs filled; with ``rng`` each dive makes
        another choice.
        """
        return fill_idle(self._program, self._dive_and_cut(give_up, rng))

    def _dive_and_cut(self, give_up: float, rng: np.random.Generator | None) -> Ints:
        """Dive until a share of the idle GPUs is taken, then cut and dive in what remains."""
        program = self._program
        is_small = len(program.value) < _SMALL_REST
        gpus = inf if is_small else _DIVE_SHARE * float(program.idle.sum())
        near = np.concatenate([NONE, *self.best.near(program, relative=_NEAR_OF_DIVE)])
        columns = _few_of_each(program, self.best, near, _PER_JOB_OF_DIVE)
        columns = distinct(columns, self._active[self._x > _FREQUENT_SHARE])
        packing, x = self._packing(columns), self._solution(columns)
        choice = dive(program, columns, packing, self._row, x, gpus, give_up, rng)
        if is_small or np.all(choice < 0):
            return choice
        return self._plan_rest(choice, give_up, rng)

    def _plan_rest(self, choice: Ints, give_up: float, rng: np.random.Generator | None) -> Ints:
        """Return ``choice`` with more jobs, by cuts and a dive in what it leaves open."""
        rest, numbers = remaining(self._program, choice)
        if not len(numbers) or monotonic() > give_up:
            return choice
        row = self._row[: len(self._rows.limit)]
        relaxation = PrimalDual(rest, prices_at(rest, capacity_rows(rest), row))
        relaxation._are_kinds_enough = self._are_kinds_enough
        for _ in range(_ROUNDS_OF_REST):
            relaxation.go_on(give_up)
            if not relaxation.cut(give_up):
                break
        further = relaxation._dive_and_cut(give_up, rng)
        return np.where(further >= 0, numbers[further], choice)

    def _solution(self, columns: Ints) -> Floats:
        """Carry the last solution over to other ``columns`` (sorted), 0 for new ones."""
        x = np.zeros(len(columns))
        _, old, new = np.intersect1d(self._active, columns, assume_unique=True, return_indices=True)
        x[new] = self._x[old]
        return x

    def _columns(self) -> Ints:
        """Choose the columns of the next round, sorted."""
        program = self._program
        near = np.concatenate([NONE, *self._last.near(program, relative=_NEAR_OF_ROUND)])
        near = _few_of_each(program, self._last, near, _PER_JOB)
        losses = [prices.loss(program, self._active) for prices in (self.best, self._last)]
        stays = np.minimum(*losses) <= _STAYS * program.value[self._active]
        return distinct(self._active[stays], near)

    def _packing(self, columns: Ints) -> Packing:
        """Build the relaxation over ``columns`` (sorted), with all rows except those of jobs."""
        jobs = self._program.configurations.jobs
        column, row, amount = self._entries(columns)
        in_capacity = row >= jobs
        scale = np.ones(len(self._limits()) - jobs)
        scale[len(self._rows.limit) + len(self._cuts.limit) :] = _OF_CLIQUE
        entries = (
            column[in_capacity],
            row[in_capacity] - jobs,
            amount[in_capacity] * scale[row[in_capacity] - jobs],
        )
        limit = self._limits()[jobs:] * scale
        value, job = self._program.value[columns], self._job[columns].astype(np.int64)
        return Packing.build(value, job, entries, limit)

    def _prices(self, row: Floats) -> ItemPrices:
        """Return the items' prices for the prices ``row`` of the rows, cuts and cliques."""
        first = len(self._rows.limit)
        row_prices, cut_prices, unit_cut_prices = np.split(
            row, [first, first + len(self._cuts.limit)]
        )
        return self._item_prices(row_prices, cut_prices, _OF_CLIQUE * unit_cut_prices)


def _few_of_each(program: Program, prices: ItemPrices, columns: Ints, limit: int) -> Ints:
    """Select up to ``limit`` of each job's ``columns`` (sorted), those with the least loss; fewer a
    job if all jobs together would have too many.
    """
    job = program.configurations.jobs_of(columns)
    limit = min(limit, _COLUMNS // max(1, int(np.count_nonzero(prices.job))))
    order = np.lexsort((prices.loss(program, columns), job))
    rank = np.arange(len(order)) - np.searchsorted(job, job[order])
    return np.sort(columns[order[rank < max(1, limit)]])


def _interpolate(
    program: Program, first: ItemPrices, second: ItemPrices, share: float
) -> ItemPrices:
    """Return the prices at a ``share`` of the way from ``first`` to ``second``."""
    item = first.item + share * (second.item - first.item)
    capacity = first.capacity + share * (second.capacity - first.capacity)
    return prices_of_items(
        program, item, capacity, first.column_costs.interpolate(second.column_costs, share)
    )


if __name__ == "__main__":
    for step_result in rounds(*child.question()):
        child.answer(_encode(step_result))
