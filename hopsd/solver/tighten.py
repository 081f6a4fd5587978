"""Tighten the bound where servers are short of cores or memory: an LP with cuts, round by round.

Every round solves the LP relaxation over the columns that could matter, and adds the cuts of single
servers that its solution violates most. It runs in a child process: HiGHS inside this one could
not be killed, and its crash would be ours.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import dataclass, field
from time import monotonic

import numpy as np

from hopsd.core.placement.program import Program
from hopsd.core.placement.shapes import ramp
from hopsd.errors import SolverError
from hopsd.model.arrays import NONE, Floats, Ints
from hopsd.solver.backend.linear import Constraints
from hopsd.solver.backend.simplex import Simplex
from hopsd.solver.bound.cuts import capacity_rows
from hopsd.solver.bound.dual_prices import Prices
from hopsd.solver.bound.knapsack_cuts import Cuts, ServerParts, factors, patterns
from hopsd.solver.bound.reduced_cost import ItemPrices, prices_of_items

# A server's cuts give weights to this many of its kinds at most, with so many patterns.
_KINDS_MAX, _PATTERNS_MAX = 12, 3_000
_ROUNDS, _CUTS_PER_SERVER = 20, 4
# An LP of more servers takes longer than a plan may.
_SERVERS_MAX = 400
# Columns of the first LP, by loss relative to value; how many are added at once, and how often.
_NEAR, _MORE_COLUMNS, _PRICINGS = 0.03, 1_500, 2
# Steps from the best prices known towards those of an LP.
_STEPS = (1.0, 0.5, 0.25, 0.1)
# Relative: a bound so close to the LP's is the LP's; two rounds with less progress are the last.
_CLOSE, _PROGRESS = 2e-4, 5e-4
_VIOLATED, _USED = 1e-4, 1e-6
# The child stops by itself a little before it is killed.
_TOLD_SHARE = 0.9


def tighten(program: Program, prices: Prices, target: float, give_up: float) -> ItemPrices:
    """Prices that prove a lower bound than ``prices``; these where there is nothing to gain.

    Stops once ``target`` is proven or, with the best so far, at ``give_up`` (monotonic seconds).
    """
    servers = len(program.configurations.pool)
    if servers > _SERVERS_MAX or not program.configurations.short_of_more_than_gpus:
        return prices
    seconds = give_up - monotonic()
    if seconds <= 0:
        return prices
    told = monotonic() + _TOLD_SHARE * seconds
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "hopsd.solver.tighten"],
            input=pickle.dumps((program, prices, target, told)),
            timeout=seconds if np.isfinite(seconds) else None,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            check=True,
        )
        capacity, *item = np.frombuffer(done.stdout)
    except (subprocess.SubprocessError, OSError, ValueError):
        return prices
    found = prices_of_items(program, np.array(item), float(capacity))
    return min(prices, found, key=lambda known: known.bound)


def find_cuts(program: Program, prices: Prices, target: float, give_up: float) -> ItemPrices:
    """What :func:`tighten` returns, in this process."""
    relaxation = _Relaxation(program, prices)
    bounds = [prices.bound]
    try:
        for _ in range(_ROUNDS):
            relaxation.solve(give_up)
            best = relaxation.best
            bounds.append(best.bound)
            stalled = bounds[-3:][0] - best.bound < 2 * _PROGRESS * best.bound
            if best.bound <= target or monotonic() > give_up or not relaxation.cut(give_up):
                break
            if len(bounds) > 3 and stalled:
                break
    except SolverError:
        pass
    return relaxation.best


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
    """The LP with all cuts so far, over some of the columns."""

    def __init__(self, program: Program, prices: Prices) -> None:
        self._program, self._rows = program, capacity_rows(program)
        self._parts = parts = ServerParts.of(program)
        self._cuts = Cuts.none(len(parts.weight))
        self._job = program.configurations.job_of_column()
        self._scale = float(program.value.max())
        self.best: ItemPrices = prices
        self._active = np.concatenate([NONE, *prices.near(program, relative=_NEAR)])
        self._x = np.zeros(0)
        of_class = np.unique(parts.capacity, axis=0, return_inverse=True)[1].ravel()
        self._classes = []
        for number in range(int(of_class.max(initial=-1)) + 1):
            kinds = np.unique(parts.kind[of_class[parts.server] == number])
            self._classes.append(_Class(np.flatnonzero(of_class == number), kinds))
        # Of every cut: its class, its server and its number in the class.
        self._keys: list[tuple[int, int, int]] = []
        self._price = np.zeros(0)
        self._simplex = Simplex()

    def solve(self, give_up: float) -> None:
        """Find better prices than the best so far, while columns with a profit are added.

        Few are added a round, and the prices of an LP without the others are far off. The bound is
        convex, so it is lower on the way from the best prices known towards them (smoothing:
        Wentges, Int. Trans. Oper. Res. 4, 1997).
        """
        program = self._program
        for _ in range(_PRICINGS):
            value, job, found = self._solve_lp(give_up)
            steps = [_between(program, self.best, found, share) for share in _STEPS]
            self.best = min(self.best, *steps, key=lambda known: known.bound)
            if self.best.bound - value <= _CLOSE * value:
                break
            profit = program.value - program.per_column(found.item) - job[self._job]
            more = np.flatnonzero(profit > _USED * self._scale)
            if len(more) > _MORE_COLUMNS:
                relative = profit[more] / program.value[more]
                more = more[np.argpartition(-relative, _MORE_COLUMNS)[:_MORE_COLUMNS]]
            more = np.setdiff1d(more, self._active)
            if not len(more) or monotonic() > give_up:
                break
            columns = np.union1d(self._active, more)
            x = np.zeros(len(columns))
            x[np.searchsorted(columns, self._active)] = self._x
            self._active, self._x = columns, x

    def _solve_lp(self, give_up: float) -> tuple[float, Floats, ItemPrices]:
        """The LP over the active columns: its value, the jobs' prices (jobs,) and the items'."""
        program, rows, cuts = self._program, self._rows, self._cuts
        jobs, active = program.configurations.jobs, self._active
        column, row, amount = self._entries()
        known, row = np.unique(row, return_inverse=True)
        limit = np.concatenate([np.ones(jobs), rows.limit, cuts.limit])[known]
        constraints = Constraints(row.ravel(), column, amount, limit)
        beside = jobs + len(rows.limit)
        labels = [r if r < beside else self._keys[r - beside] for r in known.tolist()]
        found = self._simplex.minimise(
            -program.value[active] / self._scale,
            constraints,
            active.tolist(),
            labels,
            give_up - monotonic(),
        )
        if found is None:
            raise SolverError("a capacity is below 0")
        price = np.zeros(jobs + len(rows.limit) + len(cuts.limit))
        price[known] = np.maximum(found.prices, 0.0) * self._scale
        of_rows, of_cuts = price[jobs : jobs + len(rows.limit)], price[jobs + len(rows.limit) :]
        self._price = of_cuts
        item = rows.cost(of_rows)
        of_parts = cuts.costs(self._parts, of_cuts)
        item[: len(of_parts)] += of_parts
        capacity = float(of_rows @ rows.limit + of_cuts @ cuts.limit)
        self._x = found.x
        return (
            -found.objective * self._scale,
            price[:jobs],
            prices_of_items(program, item, capacity),
        )

    def _entries(self) -> tuple[Ints, Ints, Floats]:
        """Columns (positions among the active), rows and amounts of the LP's matrix."""
        program, rows, cuts = self._program, self._rows, self._cuts
        active, jobs = self._active, program.configurations.jobs
        count = len(active)
        items = program.items(active)
        lengths = rows.start[items + 1] - rows.start[items]
        at = np.repeat(rows.start[items], lengths) + ramp(lengths)
        own = np.repeat(np.arange(len(items)) % count, lengths)
        holder, part = self._active_parts()
        server, kind = self._parts.server[part], self._parts.kind[part]
        first = np.searchsorted(cuts.server, server)
        several = np.searchsorted(cuts.server, server, side="right") - first
        cut = np.repeat(first, several) + ramp(several)
        factor = cuts.factor[cut, np.repeat(kind, several)]
        column = np.concatenate([np.arange(count), own, np.repeat(holder, several)])
        row = [self._job[active], jobs + rows.row[at], jobs + len(rows.limit) + cut]
        amount = np.concatenate([np.ones(count), rows.amount[at], factor])
        used = amount > 0.0
        return column[used], np.concatenate(row)[used], amount[used]

    def _active_parts(self) -> tuple[Ints, Ints]:
        """The positions among the active columns of those that have each part, and the part."""
        items = self._program.configurations.shape[self._active].astype(np.int64)
        holder, entry = self._parts.entries(items)
        return holder, self._parts.part[entry]

    def cut(self, give_up: float) -> bool:
        """Add cuts that the LP's solution violates, without those that no longer bind; returns
        whether there are any.
        """
        holder, part = self._active_parts()
        parts = self._parts
        held = np.zeros((len(parts.capacity), len(parts.weight)))
        np.add.at(held, (parts.server[part], parts.kind[part]), self._x[holder])
        self._find(held, give_up)
        binding = np.flatnonzero(self._price > 0.0)
        keys = [self._keys[cut] for cut in binding.tolist()]
        has, server, factor = set(keys), [], []
        for number, group in enumerate(self._classes):
            if not group.factor:
                continue
            known = np.array(group.factor)
            excess = held[group.servers] @ known.T
            for at, own in zip(group.servers.tolist(), excess, strict=True):
                for best in np.argsort(-own, kind="stable")[:_CUTS_PER_SERVER].tolist():
                    key = number, at, best
                    if own[best] > 1 + _VIOLATED and key not in has:
                        keys.append(key)
                        server.append(at)
                        factor.append(known[best])
        if not server:
            return False
        # In units of the server's GPUs, like every other row.
        at = np.array(server)
        unit = np.maximum(1, parts.capacity[at, 0]).astype(np.float64)
        new = Cuts(at, np.array(factor) * unit[:, None], unit)
        self._cuts, order = Cuts.joined(self._cuts.some(binding), new)
        self._keys = [keys[cut] for cut in order.tolist()]
        return True

    def _find(self, held: Floats, give_up: float) -> None:
        """Cuts that servers violate: weights of kinds with the largest sum over what is ``held``,
        such that no pattern weighs more than 1; one LP for all servers.
        """
        weight, capacity = self._parts.weight, self._parts.capacity
        found: list[tuple[_Class, Ints, Ints]] = []
        row, column, value, gain = [], [], [], []
        rows = columns = 0
        for group in self._classes:
            for server in group.servers.tolist():
                kinds = np.flatnonzero((held[server] > _USED) & (weight[:, 0] > 0))
                if not len(kinds):
                    continue
                by_size = np.argsort(-held[server, kinds] * weight[kinds, 0], kind="stable")
                kinds = kinds[by_size[:_KINDS_MAX]]
                own = patterns(weight[kinds], capacity[server], _PATTERNS_MAX)
                while own is None:
                    kinds = kinds[:-1]
                    own = patterns(weight[kinds], capacity[server], _PATTERNS_MAX)
                at, kind = np.nonzero(own)
                row.append(rows + at)
                column.append(columns + kind)
                value.append(own[at, kind].astype(np.float64))
                gain.append(held[server, kinds])
                rows, columns = rows + len(own), columns + len(kinds)
                found.append((group, kinds, own))
        if not found:
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
        for (group, kinds, own), gains in zip(found, gain, strict=True):
            alpha = best.x[first : first + len(kinds)]
            first += len(kinds)
            values = own @ alpha
            most = float(values.max())
            if alpha @ gains <= (1 + _VIOLATED) * most:
                continue
            factor = np.zeros(len(weight))
            values = values / most
            factor[group.kinds] = factors(values, own @ weight[kinds], weight[group.kinds])
            key = np.round(factor, 9).tobytes()
            if key not in group.known:
                group.known.add(key)
                group.factor.append(factor)


def _between(program: Program, first: ItemPrices, second: ItemPrices, share: float) -> ItemPrices:
    """The prices at a ``share`` of the way from the first to the second."""
    item = first.item + share * (second.item - first.item)
    capacity = first.capacity + share * (second.capacity - first.capacity)
    return prices_of_items(program, item, capacity)


if __name__ == "__main__":
    made = find_cuts(*pickle.load(sys.stdin.buffer))  # noqa: S301  # from our own parent
    sys.stdout.buffer.write(np.array([made.capacity, *made.item]).tobytes())
