"""Cuts from a knapsack of jobs: which jobs fit into a limit or a server together, and with what.

In a limit of 12 GPUs, a job of 8 leaves room for another one of 4, not of 5. The limit's row allows
fractions of both, wherever they run. What a plan takes of a limit is one of its *patterns*: at most
one share for each of its jobs, all together within the limit. A server is the same with several
resources (GPUs, cores, memory); a job's share is what one of its columns takes there. Cuts of kinds
(:mod:`hopsd.solver.bound.knapsack_cuts`) also allow patterns that take one job's kind twice.

A linear program finds a value for every share such that no pattern is worth more than 1 and a
solution of the relaxation is worth as much as possible (Fenchel cuts: Boyd, SIAM J. Optim. 3,
1993). Job by job, the other shares then get the largest value that keeps all patterns at 1 or less
(sequential lifting: Padberg, Oper. Res. 23, 1975), so that the relaxation gains little by them.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from time import monotonic
from typing import Self

import numpy as np

from hopsd.core.placement.program import Program
from hopsd.core.placement.shapes import ramp
from hopsd.model.arrays import NONE, Bools, Floats, Ints
from hopsd.solver.backend.linear import Constraints
from hopsd.solver.backend.simplex import Simplex
from hopsd.solver.bound.clique_cuts import UnitCut
from hopsd.solver.bound.knapsack_cuts import ServerParts

# A cut must be violated by this much; a smaller load of a share counts as none.
_MIN_VIOLATION, _POSITIVE = 0.01, 0.01
# The most patterns in a linear program, and the most entries of a table for lifting.
_MAX_PATTERNS, _MAX_TABLE = 3_000, 10_000
# Values below this are rounding errors.
_LEAST = 1e-9


@dataclass(frozen=True, slots=True)
class _Knapsack:
    """The shares of one limit or server: ``pairs``, their numbers, and ``job``, both (shares,);
    ``amount``, what each takes of ``capacity``, (shares, resources) and (resources,).
    """

    pairs: Ints
    job: Ints
    amount: Ints
    capacity: Ints


class JobCutFinder:
    """Finds cuts of knapsacks that a solution of the relaxation violates."""

    def __init__(
        self,
        program: Program,
        held: tuple[Ints, Ints, Ints],
        weight: Ints,
        capacity: Ints,
    ) -> None:
        """``held``: columns (sorted), knapsacks and kinds, (entries,) each, at most one entry for
        a column and a knapsack. ``weight`` (kinds, resources), ``capacity`` (knapsacks, resources).
        """
        column, knapsack, kind = held
        jobs = program.configurations.jobs
        key = (knapsack * len(weight) + kind) * jobs + program.configurations.jobs_of(column)
        keys, self._pair = np.unique(key, return_inverse=True)
        # The entries of every column, and the columns of every pair of a share and a job.
        self._start = np.searchsorted(column, np.arange(len(program.value) + 1))
        order = np.argsort(self._pair, kind="stable")
        self._column = column[order]
        self._first = np.searchsorted(self._pair[order], np.arange(len(keys) + 1))
        rest, job = np.divmod(keys, jobs)
        number, kind = np.divmod(rest, len(weight))
        self._knapsacks = []
        for index, room in enumerate(capacity):
            pairs = np.flatnonzero(number == index)
            amount = weight[kind[pairs]]
            inside = np.any(amount > 0, axis=1) & np.all(amount <= room, axis=1)
            pairs = pairs[inside]
            if len(pairs):
                self._knapsacks.append(_Knapsack(pairs, job[pairs], amount[inside], room))

    @classmethod
    def of_limits(cls, program: Program) -> Self:
        """Return the finder for a site's limits."""
        columns, demands = program.configurations, program.configurations.demands
        limits = np.flatnonzero(columns.server < 0)
        if columns.share is None or _has_unlisted(program):
            return cls(program, (NONE, NONE, NONE), np.zeros((1, 1), dtype=np.int64), NONE)
        lengths, entry = demands.entries(columns.share.astype(np.int64))
        column = np.repeat(np.arange(len(columns)), lengths)
        is_taken = demands.amount[entry] > 0
        amounts, kind = np.unique(demands.amount[entry[is_taken]], return_inverse=True)
        limit = np.searchsorted(limits, demands.row[entry[is_taken]])
        held = column[is_taken], limit, kind.ravel()
        return cls(program, held, amounts[:, None], program.capacity[limits][:, None])

    @classmethod
    def of_servers(cls, program: Program) -> Self:
        """Return the finder for servers and all their resources."""
        parts = ServerParts.from_program(program)
        column, entry = parts.entries(program.configurations.shape.astype(np.int64))
        part = parts.part[entry]
        held = column, parts.server[part], parts.kind[part]
        capacity = NONE if _has_unlisted(program) else parts.capacity
        return cls(program, held, parts.weight, capacity)

    def find(self, columns: Ints, x: Floats, give_up: float = inf) -> list[UnitCut]:
        """Return cuts that the solution ``x`` over ``columns`` violates, at most one per knapsack.

        Shares that none of ``columns`` takes are not lifted. Stops at ``give_up`` (monotonic s).
        """
        lengths = self._start[columns + 1] - self._start[columns]
        pair = self._pair[np.repeat(self._start[columns], lengths) + ramp(lengths)]
        load = np.bincount(pair, np.repeat(x, lengths), len(self._first) - 1).astype(np.float64)
        is_active = np.bincount(pair, minlength=len(load)) > 0
        cuts = []
        for knapsack in self._knapsacks:
            if monotonic() > give_up:
                break
            active = knapsack.pairs[is_active[knapsack.pairs]]
            part = _select(knapsack, is_active[knapsack.pairs])
            value = _most_violated(part, load[active], give_up)
            if value is not None:
                level, levels = levels_of(part.amount, part.capacity)
                lifted = lift(value, part.job, level, levels, load[active])
                cuts.append(self._cut(active, lifted))
        return cuts

    def _cut(self, pairs: Ints, value: Floats) -> UnitCut:
        """Return the cut in which every column of ``pairs`` counts their ``value``."""
        pairs, value = pairs[value > 0.0], value[value > 0.0]
        lengths = self._first[pairs + 1] - self._first[pairs]
        column = self._column[np.repeat(self._first[pairs], lengths) + ramp(lengths)]
        order = np.argsort(column)
        return UnitCut(NONE, column[order], np.repeat(value, lengths)[order])


def _has_unlisted(program: Program) -> bool:
    """Whether some sets of servers are no columns: they would not count in a cut of columns, and
    the bound would be higher.
    """
    return not program.configurations.lists_all_sets


def _select(knapsack: _Knapsack, selection: Bools) -> _Knapsack:
    return _Knapsack(
        knapsack.pairs[selection],
        knapsack.job[selection],
        knapsack.amount[selection],
        knapsack.capacity,
    )


def _most_violated(knapsack: _Knapsack, load: Floats, give_up: float) -> Floats | None:
    """Return the values (shares,) of the cut that ``load`` (shares,) violates most, if any."""
    held = np.flatnonzero(load > _POSITIVE)
    if load[held].sum() <= 1 + _MIN_VIOLATION:
        return None
    held, choices = _patterns_of_jobs(held, load, knapsack)
    row, column = np.nonzero(choices)
    constraints = Constraints(row, column, np.ones(len(row)), np.ones(len(choices)))
    best = Simplex().minimise(
        -load[held], constraints, range(len(held)), range(len(choices)), give_up - monotonic()
    )
    if best is None or -best.objective <= 1 + _MIN_VIOLATION:
        return None
    value = np.zeros(len(load))
    # Rounding errors of the solver must not make a pattern worth more than 1.
    value[held] = best.x / max(1.0, float((choices @ best.x).max()))
    return value


def _patterns_of_jobs(held: Ints, load: Floats, knapsack: _Knapsack) -> tuple[Ints, Ints]:
    """Return the shares that take part and all their full patterns, as rows of 0 and 1 (patterns,
    shares). The shares are those ``held`` of the jobs with the largest ``load`` times amount, up to
    the job with which the patterns would become too many.
    """
    jobs, job_index = np.unique(knapsack.job[held], return_inverse=True)
    size = np.bincount(job_index, load[held] * knapsack.amount[held, 0], len(jobs))
    choices, free, part = np.zeros((1, 0), dtype=np.int64), knapsack.capacity[None, :], [NONE]
    can_add = np.zeros((1, 0), dtype=np.bool_)
    for number in np.argsort(-size, kind="stable").tolist():
        shares = held[job_index == number]
        amount = knapsack.amount[shares]
        taken = np.concatenate([np.zeros_like(amount[:1]), amount])
        remaining = free[:, None, :] - taken[None]
        pattern, option = np.nonzero(np.all(remaining >= 0, axis=2))
        if len(pattern) > _MAX_PATTERNS:
            break
        one = np.eye(len(shares) + 1, dtype=np.int64)[option, 1:]
        choices, free = np.concatenate([choices[pattern], one], axis=1), remaining[pattern, option]
        is_out = np.repeat((option == 0)[:, None], len(shares), axis=1)
        can_add = np.concatenate([can_add[pattern], is_out], axis=1)
        part.append(shares)
    selected = np.concatenate(part)
    for position, share in enumerate(selected.tolist()):
        can_add[:, position] &= np.all(free >= knapsack.amount[share], axis=1)
    return selected, choices[~can_add.any(axis=1)]


def levels_of(amount: Ints, capacity: Ints) -> tuple[Ints, Ints]:
    """Return ``amount`` (shares, resources) and ``capacity`` (resources,) in whole levels, few
    enough for a table. Amounts within the capacity are within it in levels, too: the levels are
    exact if there are few, and rounded down otherwise.
    """
    unit = np.gcd.reduce(amount, axis=0)
    span = np.where(unit > 0, capacity // np.maximum(unit, 1) * unit, 0)
    levels = np.where(unit > 0, capacity // np.maximum(unit, 1), 0)
    while np.prod(levels + 1.0) > _MAX_TABLE + 1:
        levels[np.argmax(levels)] //= 2
    return amount * levels // np.maximum(span, 1), levels


def lift(value: Floats, job: Ints, level: Ints, levels: Ints, load: Floats) -> Floats:
    """Return the lifted values of a cut's shares (shares,): at least ``value``, and none could be
    larger alone. At most one share per ``job``, all within ``levels`` (resources,), is worth at
    most 1. Shares take ``level`` (shares, resources); of jobs without a value, those with the
    largest ``load`` are lifted first.
    """
    lifted = value.copy()
    order = np.argsort(job, kind="stable")
    _, first = np.unique(job[order], return_index=True)
    shares_of = np.split(order, first[1:])
    valued = [shares for shares in shares_of if np.any(value[shares] > 0.0)]
    others = [shares for shares in shares_of if not np.any(value[shares] > 0.0)]
    others.sort(key=lambda shares: -load[shares].sum())
    # The most value of the jobs after each of those with a value, and of those before it.
    after = [np.zeros(levels + 1)]
    for shares in reversed(valued):
        after.append(_with_job(after[-1], level[shares], value[shares]))
    before = np.zeros(levels + 1)
    for number, shares in enumerate(valued):
        later = after[len(valued) - 1 - number]
        for share in shares.tolist():
            worth = 1.0 - _most_of_both(before, later, levels - level[share])
            lifted[share] = max(lifted[share], worth if worth > _LEAST else 0.0)
        before = _with_job(before, level[shares], lifted[shares])
    for shares in others:
        worth = 1.0 - before[tuple((levels - level[shares]).T)]
        lifted[shares] = np.where(worth > _LEAST, worth, 0.0)
        before = _with_job(before, level[shares], lifted[shares])
    return lifted


def _most_of_both(first: Floats, second: Floats, levels: Ints) -> float:
    """Return the most value within ``levels`` (resources,) of two tables' jobs together."""
    inside = tuple(slice(0, top) for top in (levels + 1).tolist())
    return float((first[inside] + np.flip(second[inside])).max())


def _with_job(best: Floats, level: Ints, values: Floats) -> Floats:
    """Return the most value within all levels, a table with an axis for each resource, with one
    more job; ``best`` is the same for the other jobs.
    """
    more = best.copy()
    for steps, value in zip(level.tolist(), values.tolist(), strict=True):
        if value > 0.0:
            beyond = tuple(slice(step, None) for step in steps)
            below = tuple(
                slice(0, size - step) for step, size in zip(steps, best.shape, strict=True)
            )
            np.maximum(more[beyond], best[below] + value, out=more[beyond])
    return more
