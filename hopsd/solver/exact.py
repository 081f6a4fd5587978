"""Exact solution of small programs by dynamic programming in integers.

CBC's tolerances (1e-6 on values, 1e-10 on prices) lose values that are small beside the largest;
with priorities over many decades these are most jobs' values. Here values are integers of any
length, so a job a trillion times lighter still decides between plans that are equal without it.
"""

from __future__ import annotations

from decimal import Context, Decimal
from itertools import pairwise

import numpy as np

from hopsd.core.placement.configurations import Configurations
from hopsd.core.placement.program import Program
from hopsd.model.arrays import Ints

# About 0.2 s of pure Python; programs with more steps than this go to CBC.
_MAX_STEPS = 100_000
_MAX_COLUMNS = 5_000
# Gains that agree in this many digits are equal: the rest is rounding of products of throughputs.
_GAIN_DIGITS = 12
_WEIGHTS = Context(prec=40, Emax=10**9, Emin=-(10**9))
_PRODUCTS = Context(prec=60, Emax=10**9, Emin=-(10**9))

_Free = tuple[int, ...]
_Column = tuple[int, int, tuple[tuple[int, int], ...]]


def solve_exactly(program: Program) -> Ints | None:
    """Return the optimal choice, or None if the program is too large."""
    if (job := _alone(program)) is not None:
        return _choose_for_one_job(program, job)
    if len(program.value) > _MAX_COLUMNS or _least_steps(program) > _MAX_STEPS:
        return None
    columns = _columns(program)
    rows = sorted({row for job in columns for _, _, parts in job for row, _ in parts})
    position = {row: i for i, row in enumerate(rows)}
    packed_jobs = [
        [(value, column, tuple((position[r], n) for r, n in parts)) for value, column, parts in job]
        for job in columns
    ]
    best = _search(packed_jobs, tuple(int(program.capacity[row]) for row in rows))
    return None if best is None else np.array(best, dtype=np.int64)


def _alone(program: Program) -> int | None:
    """Return the only job with columns; None if several jobs, or none, have columns."""
    jobs = np.flatnonzero(np.diff(program.configurations.start))
    return int(jobs[0]) if len(jobs) == 1 else None


def _choose_for_one_job(program: Program, job: int) -> Ints:
    """Choose what :func:`_search` would if only one job has columns: of its best columns that fit,
    the first that takes the most. A later plan of a large cluster is often for a single new job.
    """
    configurations = program.configurations
    choice = np.full(configurations.jobs, -1, dtype=np.int64)
    job_columns = slice(int(configurations.start[job]), int(configurations.start[job + 1]))
    columns = job_columns.start + np.flatnonzero(program.fits(program.capacity)[job_columns])
    if len(columns):
        gains, inverse = np.unique(program.gain(columns), return_inverse=True)
        first = len(gains) - 1
        while first and _to_decimal(gains[first - 1]) == _to_decimal(gains[-1]):
            first -= 1
        best = columns[inverse.ravel() >= first]
        amount_sums = np.append(0, np.cumsum(configurations.demands.amount))
        item_amount = np.diff(amount_sums[configurations.demands.start])
        choice[job] = best[
            np.argmax(item_amount[program.items(best)].reshape(-1, len(best)).sum(0))
        ]
    return choice


def _to_decimal(gain: float) -> Decimal:
    """Round away the rounding errors in a gain, which is a product of throughputs."""
    return Decimal(f"{gain:.{_GAIN_DIGITS}g}")


def _least_steps(program: Program) -> int:
    """Return a lower bound on the steps: ``n`` columns of a job leave at least ``n + 1`` states."""
    lengths = np.diff(program.configurations.start)
    states = 1 + np.maximum.accumulate(np.append(0, lengths))[:-1]
    return int(lengths @ states)


def _columns(program: Program) -> list[list[_Column]]:
    configurations = program.configurations
    whole_values = _whole_values(program)
    return [
        [
            (whole_values[column], column, _parts(configurations, column))
            for column in range(first, last)
        ]
        for first, last in pairwise(configurations.start.tolist())
    ]


def _parts(configurations: Configurations, column: int) -> tuple[tuple[int, int], ...]:
    """Return ``(row, amount)`` of everything that a column takes."""
    amounts = configurations.demands.amounts_of(int(configurations.shape[column]))
    if configurations.share is not None:
        amounts += configurations.demands.amounts_of(int(configurations.share[column]))
    return tuple((row, amount) for row, amount in amounts if amount)


def _whole_values(program: Program) -> list[int]:
    """Return every column's weight times gain as an integer, all in one unit."""
    lam = Decimal(program.lam)
    weight = [_WEIGHTS.power(Decimal(urgency), lam) for urgency in program.urgency.tolist()]
    job = program.configurations.job_of_column().tolist()
    values = [
        _PRODUCTS.multiply(weight[i], _to_decimal(gain))
        for i, gain in zip(job, program.gain(np.arange(len(job))).tolist(), strict=True)
    ]
    triples = [value.as_tuple() for value in values]
    lowest = min((int(triple.exponent) for triple in triples), default=0)
    return [
        int("".join(map(str, triple.digits))) * 10 ** (int(triple.exponent) - lowest)
        for triple in triples
    ]


def _search(columns: list[list[_Column]], free: _Free) -> list[int] | None:
    """Find the best choice by dynamic programming over jobs, on states of the free rows.

    None as soon as it is certain to take too many steps: the number of states only grows.
    """
    steps, remaining_columns = 0, sum(map(len, columns))
    states: dict[_Free, int] = {free: 0}
    origins: list[dict[_Free, tuple[_Free, int]]] = []
    for job_columns in columns:
        if steps + len(states) * remaining_columns > _MAX_STEPS:
            return None
        steps, remaining_columns = (
            steps + len(states) * len(job_columns),
            remaining_columns - len(job_columns),
        )
        next_states = dict(states)
        origin = {state: (state, -1) for state in states}
        for state, value in states.items():
            for gain, column, parts in job_columns:
                if any(amount > state[row] for row, amount in parts):
                    continue
                free_rows = list(state)
                for row, amount in parts:
                    free_rows[row] -= amount
                key = tuple(free_rows)
                if value + gain > next_states.get(key, -1):
                    next_states[key] = value + gain
                    origin[key] = (state, column)
        states = next_states
        origins.append(origin)
    return _trace(states, origins)


def _trace(states: dict[_Free, int], origins: list[dict[_Free, tuple[_Free, int]]]) -> list[int]:
    state = max(states, key=lambda s: (states[s], -sum(s)))
    choice = []
    for origin in reversed(origins):
        state, column = origin[state]
        choice.append(column)
    return choice[::-1]
