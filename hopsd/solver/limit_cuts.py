"""Cuts from a site limit's own knapsack: which jobs fit into it together, each with how many GPUs.

In a limit of 12 GPUs, a job of 8 leaves room for another one of 4, not of 5. The limit's row allows
fractions of both, wherever they run. What a plan takes of a limit is one of its *patterns*: at most
one share for each of its jobs, all together within the limit. A linear program finds a value for
every share such that no pattern is worth more than 1 and a solution of the relaxation is worth as
much as possible (Fenchel cuts: Boyd, SIAM J. Optim. 3, 1993). Job by job, every share then gets the
largest value that keeps all patterns at 1 or less (sequential lifting: Padberg, Oper. Res. 23,
1975), so that the relaxation gains nothing by another count. On 128 idle GPUs with 4 limits of 3
GPUs, these cuts lower the bound with the cuts of single servers from 336.2 to 330.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from time import monotonic

import numpy as np

from hopsd.core.placement.program import Program
from hopsd.model.arrays import NONE, Floats, Ints
from hopsd.solver.backend.linear import Constraints
from hopsd.solver.backend.simplex import Simplex
from hopsd.solver.bound.clique_cuts import UnitCut

# A cut must be violated by this much; a smaller load of a share counts as none.
_MIN_VIOLATION, _POSITIVE = 1e-3, 1e-6
# The most patterns of a limit in a linear program; limits of more units than this get no cuts.
_MAX_PATTERNS, _MAX_UNITS = 3_000, 10_000


@dataclass(frozen=True, slots=True)
class _Limit:
    """The shares of one limit, sorted by job: ``pairs``, ``job`` and ``amount``, what each takes of
    ``capacity``, all (shares,).
    """

    pairs: Ints
    job: Ints
    amount: Ints
    capacity: int


class LimitCutFinder:
    """Finds cuts of limits that a solution of the relaxation violates."""

    def __init__(self, program: Program) -> None:
        columns = program.configurations
        self._limits: list[_Limit] = []
        # Unlisted sets of servers would not count, and the bound would be higher.
        if columns.share is None or not all(sets.complete for sets in columns.families):
            return
        share, job = columns.share.astype(np.int64), columns.job_of_column().astype(np.int64)
        keys, self._pair = np.unique(job * len(columns.demands) + share, return_inverse=True)
        pair_job, item = np.divmod(keys, len(columns.demands))
        lengths, entry = columns.demands.entries(item)
        pair = np.repeat(np.arange(len(keys)), lengths)
        row, amount = columns.demands.row[entry], columns.demands.amount[entry]
        for limit in np.flatnonzero(columns.server < 0).tolist():
            inside = np.flatnonzero((row == limit) & (amount > 0))
            unit = int(np.gcd.reduce(amount[inside], initial=0)) or 1
            capacity = int(program.capacity[limit]) // unit
            if len(inside) and capacity <= _MAX_UNITS:
                pairs = pair[inside]
                self._limits.append(
                    _Limit(pairs, pair_job[pairs], amount[inside] // unit, capacity)
                )

    def find(self, columns: Ints, x: Floats, give_up: float = inf) -> list[UnitCut]:
        """Return cuts that the solution ``x`` over ``columns`` violates, at most one per limit."""
        if not self._limits:
            return []
        pair = self._pair[columns]
        load = np.bincount(pair, x, int(self._pair.max()) + 1).astype(np.float64)
        cuts = []
        for limit in self._limits:
            if monotonic() > give_up:
                break
            value = _most_violated(limit, load[limit.pairs], give_up)
            if value is None:
                continue
            pair_values = np.zeros(len(load))
            pair_values[limit.pairs] = lift(value, limit.job, limit.amount, limit.capacity)
            inside = np.flatnonzero(pair_values[self._pair])
            cuts.append(UnitCut(NONE, inside, pair_values[self._pair[inside]]))
        return cuts


def _most_violated(limit: _Limit, load: Floats, give_up: float) -> Floats | None:
    """Return the values (shares,) of the cut that ``load`` (shares,) violates most, if any."""
    held = np.flatnonzero((load > _POSITIVE) & (limit.amount <= limit.capacity))
    held, choices = _patterns_of_jobs(held, load, limit)
    if not len(held):
        return None
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


def _patterns_of_jobs(held: Ints, load: Floats, limit: _Limit) -> tuple[Ints, Ints]:
    """Return the shares that take part and all their patterns, as rows of 0 and 1 (patterns,
    shares). The shares are those ``held`` of the jobs with the largest ``load`` times amount, up to
    the job with which the patterns would become too many.
    """
    jobs, job_index = np.unique(limit.job[held], return_inverse=True)
    size = np.bincount(job_index, load[held] * limit.amount[held], len(jobs))
    choices, used, part = np.zeros((1, 0), dtype=np.int64), np.zeros(1, dtype=np.int64), [NONE]
    for number in np.argsort(-size, kind="stable").tolist():
        shares = held[job_index == number]
        total = used[:, None] + np.append(0, limit.amount[shares])
        pattern, option = np.nonzero(total <= limit.capacity)
        if len(pattern) > _MAX_PATTERNS:
            break
        one = np.eye(len(shares) + 1, dtype=np.int64)[option, 1:]
        choices, used = np.concatenate([choices[pattern], one], axis=1), total[pattern, option]
        part.append(shares)
    return np.concatenate(part), choices


def lift(value: Floats, job: Ints, amount: Ints, capacity: int) -> Floats:
    """Return the lifted values of a cut's shares (shares,): at least ``value``, and none could be
    larger alone. At most one share per ``job``, all within ``capacity``, is worth at most 1.
    """
    lifted, fits = value.copy(), amount <= capacity
    valued_jobs = np.unique(job[value > 0.0])
    shares_of = {number: np.flatnonzero((job == number) & fits) for number in valued_jobs.tolist()}
    for number, job_shares in shares_of.items():
        others = np.zeros(capacity + 1)
        for other, shares in shares_of.items():
            if other != number:
                others = _with_job(others, amount[shares], lifted[shares])
        lifted[job_shares] = np.maximum(0.0, 1.0 - others[capacity - amount[job_shares]])
    best = np.zeros(capacity + 1)
    for shares in shares_of.values():
        best = _with_job(best, amount[shares], lifted[shares])
    for number in np.setdiff1d(job, valued_jobs).tolist():
        job_shares = np.flatnonzero((job == number) & fits)
        lifted[job_shares] = np.maximum(0.0, 1.0 - best[capacity - amount[job_shares]])
        best = _with_job(best, amount[job_shares], lifted[job_shares])
    return lifted


def _with_job(best: Floats, amounts: Ints, values: Floats) -> Floats:
    """Return the most value within every amount up to the capacity, (capacity + 1,), with one more
    job; ``best`` is the same for the other jobs.
    """
    more = best.copy()
    for amount, value in zip(amounts.tolist(), values.tolist(), strict=True):
        np.maximum(more[amount:], best[: len(best) - amount] + value, out=more[amount:])
    return more
