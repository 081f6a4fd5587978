"""Dual prices of a server's GPUs, by subgradient descent on the Lagrangian dual: no LP is solved.

One evaluation of the dual is a few numpy passes over the columns, so some hundred steps come
within 1e-3 of the LP's bound before CBC has even read the LP. A first descent prices GPU types
only, so that equal servers get equal prices: a descent by server would send all jobs to the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from time import monotonic

import numpy as np

from hopsd.core.placement.program import Program, restrict_to_jobs
from hopsd.core.placement.shapes import ramp
from hopsd.model.arrays import Floats, Ints, distinct
from hopsd.solver.bound.column_groups import ColumnGroups
from hopsd.solver.bound.cuts import KINDS, CapacityRows, SomeItems, capacity_rows
from hopsd.solver.bound.reduced_cost import ItemPrices, prices_of_items

_TYPE_STEPS = 200
# The second descent uses a few columns of every job: 10,000 idle GPUs have 14 million columns.
_ACTIVE_PER_JOB, _NEAR_SHARE, _MIN_ROUNDS, _CONVERGED_SHARE = 60, 0.05, 6, 3e-4
# If columns are not written out, prices come first from a sample of the jobs if there are more than
# twice as many, with this many prices for the servers of one kind.
_SAMPLE_JOBS, _ALIKE, _NEAR_OF_MANY = 1024, 32, 0.02
_STALL, _SHRINK, _PROGRESS = 10, 0.6, 1e-5
# With this many columns of few jobs, short rounds prove almost as much as long ones in a third of
# the time, and a sample of the jobs would be most of them.
_MANY_COLUMNS = 1 << 20
# The shares of the price by type with which a server's rows start.
_SHARES = (0.8, 0.1, 0.1)
# From this many jobs on, fragmented clusters get a larger sample, and rounds from the best prices.
_MANY_JOBS, _SAMPLE_OF_MANY = 10_000, 4096
# Momentum, the share of the last direction that is kept: a plain subgradient zigzags between rows.
_MOMENTUM = 0.7


@dataclass(frozen=True, slots=True)
class Prices(ItemPrices):
    """Dual prices ``row`` (rows,), per unit of each of ``rows``, and the item prices they imply."""

    rows: CapacityRows
    row: Floats


Dual = Callable[[Floats], tuple[float, Floats]]


def find_prices(program: Program, parts: ColumnGroups, floor: float, give_up: float) -> Prices:
    """Return prices with a bound close to the LP's. ``floor`` is the value of a feasible choice.

    Stops at ``give_up`` (monotonic seconds) with the best so far.
    """
    *_, prices = prices_in_stages(program, parts, floor, give_up)
    return prices


def prices_in_stages(
    program: Program, parts: ColumnGroups, floor: float, give_up: float, *, early: bool = False
) -> Iterator[Prices]:
    """Yield the prices of :func:`find_prices` last. If there are many columns, ``early`` yields
    others first, after a third of the steps: almost as good if servers are equally idle. Without
    ``early``, the prices after half of the rounds come first if there are many jobs.
    """
    columns, rows = program.configurations, capacity_rows(program)
    gpus = max(1, int(program.idle.sum()))
    by_type = np.full(int(columns.pool.max(initial=0)) + 1, 0.5 * floor / gpus)
    by_type = _descend(_by_type(program, parts), by_type, floor, _TYPE_STEPS, give_up)
    start = np.zeros((KINDS, len(program.capacity)))
    start[:, : rows.servers] = np.outer(_SHARES, by_type[columns.pool] * columns.speed)
    has_few_jobs = len(columns) >= _MANY_COLUMNS and columns.jobs <= 2 * _SAMPLE_JOBS
    if columns.segments is None or has_few_jobs:
        if early and has_few_jobs:
            yield _descend_in_rounds(program, rows, start.ravel(), floor, give_up, _SHORT)
        yield _descend_in_rounds(program, rows, start.ravel(), floor, give_up, _LONG)
        return
    has_many_jobs = not early and columns.jobs >= _MANY_JOBS
    size = _SAMPLE_OF_MANY if has_many_jobs else _SAMPLE_JOBS
    start_prices = _prices_of_sample(program, rows, start, floor, give_up, size)
    if has_many_jobs:
        half = _descend_in_rounds(program, rows, start_prices, floor, give_up, _STEADY)
        yield half
        yield _descend_in_rounds(program, rows, half.row, floor, give_up, _STEADY_LATER)
        return
    if early:
        yield _descend_in_rounds(program, rows, start_prices, floor, give_up, _SHORT)
    yield _descend_in_rounds(program, rows, start_prices, floor, give_up, _SAMPLE_DESCENT)


def descend_from(
    program: Program, rows: CapacityRows, start: Floats, floor: float, give_up: float
) -> Prices:
    """Continue from the prices ``start`` (rows,), which with a higher ``floor`` proves more."""
    return _descend_in_rounds(program, rows, start, floor, give_up, _LONG)


def _prices_of_sample(
    program: Program, rows: CapacityRows, start: Floats, floor: float, give_up: float, size: int
) -> Floats:
    """Find prices (rows,) from a sample of ``size`` jobs or somewhat more, equal for servers that
    are nearly alike. ``start`` is (kinds, rows of the program).
    """
    jobs, log_weight = program.configurations.jobs, program.log_weight()
    stride = max(1, jobs // size)
    in_sample = np.zeros(jobs, dtype=np.bool_)
    in_sample[np.argsort(-log_weight, kind="stable")[stride // 2 :: stride]] = True
    sample, group = restrict_to_jobs(program, in_sample), _job_groups(program)
    share = float(np.count_nonzero(in_sample)) / jobs
    merged_rows = rows.merge(group, share)
    count = np.bincount(group)
    first = np.stack([np.bincount(group, values) / count for values in start]).ravel()
    full_bound = prices_at(program, rows, start.ravel()).bound
    if not full_bound:
        return start.ravel()
    worth = prices_at(sample, merged_rows, first).bound / full_bound
    sample_prices = _descend_in_rounds(sample, merged_rows, first, worth * floor, give_up, _LONG)
    mean_prices: Floats = sample_prices.row.reshape(KINDS, -1)[:, group].ravel()
    return mean_prices


def _job_groups(program: Program) -> Ints:
    """Number the rows of the program, (rows,): servers of one type with equally many idle GPUs and
    nearly the same speed get the same number.
    """
    columns = program.configurations
    servers = len(columns.pool)
    kind = columns.pool * (int(program.idle.max(initial=0)) + 1) + program.idle
    order = np.lexsort((columns.speed, kind))
    heads = np.flatnonzero(np.append(True, np.diff(kind[order]) != 0))
    lengths = np.diff(np.append(heads, servers))
    group_size = np.repeat(np.maximum(1, lengths // _ALIKE), lengths)
    rank = ramp(lengths) // group_size
    new = np.append(True, (np.diff(kind[order]) != 0) | (np.diff(rank) != 0))
    group = np.arange(len(program.capacity))
    group[order] = np.cumsum(new) - 1
    group[servers:] += int(group[:servers].max(initial=-1)) + 1 - servers
    return group


def prices_at(program: Program, rows: CapacityRows, row: Floats) -> Prices:
    """Return the prices ``row`` (rows,), negative ones set to 0, with their Lagrangian bound.

    Any plan X keeps every row's limit, so its value is at most
    ``sum_i max(0, max_j(value_ij - cost of what j takes)) + sum_r price_r limit_r``.
    """
    row = np.maximum(row, 0.0)
    item_prices = prices_of_items(program, rows.cost(row), float(row @ rows.limit))
    job, capacity = item_prices.job, item_prices.capacity
    return Prices(
        item_prices.item, item_prices.column_costs, job, capacity, item_prices.bound, rows, row
    )


@dataclass(frozen=True, slots=True)
class _Rounds:
    """How far a descent goes: ``steps`` steps in each of the rounds ``first`` to ``end``, of length
    ``pace`` in round 0 and shorter by the factor ``shrink`` in each later one.

    With ``from_best`` a round starts from the best prices so far instead of the last ones, and ends
    at the mean of its last half, since single steps zigzag. A round that proves less than the best
    lacked active columns, and adds those near its end (a null step of bundle methods).
    """

    steps: int
    pace: float
    shrink: float
    first: int = 0
    end: int = 16
    from_best: bool = False


_LONG = _Rounds(100, 1.0, 0.6)
# Prices from a sample are worth a few of these rounds.
_SAMPLE_DESCENT = replace(_LONG, first=3)
# From those prices, long rounds first lose much of the bound (that of 40,000 idle GPUs rises by a
# fifth), until they have the right active columns; rounds of few small steps do not.
_SHORT = _Rounds(30, 0.078, 0.75, end=8)
# Rounds from the best prices. On 100,000 fragmented GPUs eight of these prove 665,359, while long
# ones rise to 1,278,465 and do not come back.
_STEADY = _Rounds(60, 0.1, 0.8, end=8, from_best=True)
_STEADY_LATER = replace(_STEADY, first=8, end=16)


def _descend_in_rounds(
    program: Program,
    rows: CapacityRows,
    start: Floats,
    floor: float,
    give_up: float,
    rounds: _Rounds,
) -> Prices:
    """Descend over an active set of columns, price all columns, add the near best, and repeat."""
    best = point = prices_at(program, rows, start)
    active = np.zeros(0, dtype=np.int64)
    for number in range(rounds.first, rounds.end):
        if monotonic() > give_up:
            break
        active = distinct(active, _near_best(program, point, np.random.default_rng(number)))
        dual, pace = _by_row(program, rows, active), rounds.pace * rounds.shrink**number
        if rounds.from_best:
            steps = [
                point
                for _, point in polyak_steps(dual, best.row, floor, rounds.steps, give_up, pace)
            ]
            row = np.mean(steps[len(steps) // 2 :], axis=0)
        else:
            row = _descend(dual, point.row, floor, rounds.steps, give_up, pace)
        point, previous_bound = prices_at(program, rows, row), best.bound
        best = min(best, point, key=lambda prices: prices.bound)
        is_converged = abs(point.bound - previous_bound) <= _CONVERGED_SHARE * previous_bound
        if is_converged and number >= _MIN_ROUNDS and not rounds.from_best:
            break
    return best


def _near_best(program: Program, prices: Prices, rng: np.random.Generator) -> Ints:
    """Return the columns within 5 % of each job's best, an evenly spaced sample if there are many;
    within 2 % if most jobs have many.
    """
    columns = program.configurations
    columns_near = prices.sample(program, _NEAR_SHARE, _ACTIVE_PER_JOB, rng)
    if columns.segments is not None and len(columns_near) > _ACTIVE_PER_JOB * np.count_nonzero(
        prices.job
    ):
        columns_near = prices.sample(program, _NEAR_OF_MANY, _ACTIVE_PER_JOB, rng)
    bounds = np.searchsorted(columns_near, columns.start)
    count = np.diff(bounds)
    stride = np.maximum(1, count // _ACTIVE_PER_JOB)
    offset = rng.integers(0, stride)
    rank = ramp(count) + np.repeat(offset, count)
    sample: Ints = columns_near[rank % np.repeat(stride, count) == 0]
    return sample


def _descend(
    dual: Dual, start: Floats, floor: float, steps: int, give_up: float, pace: float = 1.0
) -> Floats:
    """Take some steps and return the best prices."""
    steps_taken = polyak_steps(dual, start, floor, steps, give_up, pace)
    return min(steps_taken, key=lambda step: step[0], default=(np.inf, start))[1]


def polyak_steps(
    dual: Dual, start: Floats, floor: float, steps: int, give_up: float, pace: float
) -> Iterator[tuple[float, Floats]]:
    """Take Polyak's steps towards ``floor``, shorter ones whenever the bound does not fall for a
    while, and yield the bounds and prices on the way.
    """
    best, prices, stall_steps = np.inf, start, 0
    direction = np.zeros(len(start))
    for _ in range(steps):
        bound, slope = dual(prices)
        yield bound, prices
        stall_steps = 0 if bound < best - _PROGRESS * abs(bound) else stall_steps + 1
        best = min(best, bound)
        if stall_steps >= _STALL:
            pace, stall_steps = pace * _SHRINK, 0
        direction = slope + _MOMENTUM * direction
        np.putmask(direction, (prices <= 0.0) & (direction > 0.0), 0.0)
        square = _dot(direction, direction)
        if square == 0.0 or bound <= floor or monotonic() > give_up:
            break
        prices = np.maximum(0.0, prices - pace * (bound - floor) / square * direction)


def _dot(left_vector: Floats, right_vector: Floats) -> float:
    """Return the scalar product, without BLAS: BLAS splits long ones among threads, which wait for
    each other longer than they work, and its sums depend on the number of threads.
    """
    return float(np.einsum("i,i", left_vector, right_vector))


def _by_type(program: Program, parts: ColumnGroups) -> Dual:
    """Build the dual with one price per GPU type, where only a group's best column can be best."""
    weights = program.idle.astype(np.float64)
    gpus: Floats = np.bincount(program.configurations.pool, weights=weights).astype(np.float64)
    first = np.flatnonzero(np.append(True, parts.job[1:] != parts.job[:-1]))
    job = np.repeat(np.arange(len(first)), np.diff(np.append(first, len(parts))))

    def dual(prices: Floats) -> tuple[float, Floats]:
        profit = parts.best - prices[parts.pool] * parts.size
        best = np.maximum(np.maximum.reduceat(profit, first), 0.0)
        best_groups = _first_of(job, (profit >= best[job]).nonzero()[0])
        gpus_taken = np.bincount(
            parts.pool[best_groups], weights=parts.size[best_groups], minlength=len(gpus)
        )
        return float(best.sum()) + _dot(prices, gpus), np.subtract(gpus, gpus_taken)

    return dual


def _first_of(job: Ints, columns: Ints) -> Ints:
    """Return the first of each job's ``columns`` (sorted by job)."""
    job_of_column = job[columns]
    return (
        columns[np.append(True, job_of_column[1:] != job_of_column[:-1])]
        if len(columns)
        else columns
    )


def _by_row(program: Program, rows: CapacityRows, active: Ints) -> Dual:
    """Build the dual with one price per row; a job's equally good columns share its demand.

    It covers the ``active`` columns, sorted, and bounds all plans only if these are all columns.
    """
    start = np.searchsorted(active, program.configurations.start)
    value, count = program.value[active], len(active)
    items = program.items(active)
    is_used = np.zeros(len(rows.start) - 1, dtype=np.bool_)
    is_used[items] = True
    item_rows = SomeItems(rows, np.flatnonzero(is_used))
    kinds = 1 if program.configurations.share is None else 2
    item_index = (np.cumsum(is_used) - 1)[items].reshape(kinds, count)
    lengths = np.diff(start)[np.diff(start) > 0]
    job, first = np.repeat(np.arange(len(lengths)), lengths), start[:-1][np.diff(start) > 0]

    def dual(prices: Floats) -> tuple[float, Floats]:
        cost = item_rows.cost(prices)
        profit = value - cost[item_index[0]]
        for shares in item_index[1:]:
            profit -= cost[shares]
        best = np.maximum(np.maximum.reduceat(profit, first), 0.0)
        threshold = best - 1e-9 * best.max(initial=0.0)
        tied_columns = (profit >= np.repeat(threshold, lengths)).nonzero()[0]
        takers = job[tied_columns]
        share = 1.0 / np.bincount(takers)[takers]
        usage = item_rows.usage(
            item_index[:, tied_columns].ravel(), np.tile(share, len(item_index))
        )
        return float(best.sum()) + _dot(prices, rows.limit), np.subtract(rows.limit, usage)

    return dual
