"""Prices of a server's GPUs, by subgradient descent on the Lagrangian dual: no LP is solved.

The dual of eq. 11 to 13 has one price a server, and one evaluation is a few numpy passes over
the columns, so some hundred steps come within 1e-4 of the LP bound before CBC has read the LP.
A first descent prices GPU types only: equal servers keep equal prices, where a descent by
server would send all jobs to the first of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

import numpy as np

from hopsd.core.program import Program
from hopsd.core.shapes import Floats, Ints, ramp
from hopsd.solver.bound import best_profits
from hopsd.solver.segments import Segments

_TYPE_STEPS = 200
_SERVER_STEPS = 150
# Column visits of the second descent: past this, fewer steps are made (10,000 GPUs: 14 million).
_VISITS_MAX = 150_000_000
_STALL, _SHRINK, _PROGRESS = 5, 0.6, 1e-5


@dataclass(frozen=True, slots=True)
class Prices:
    """The dual: ``server`` (servers,) of a GPU, ``job`` (jobs,), and the ``bound`` they prove."""

    server: Floats
    job: Floats
    bound: float


_Dual = Callable[[Floats], tuple[float, Floats]]


def find_prices(program: Program, parts: Segments, floor: float, give_up: float) -> Prices:
    """Prices whose bound is close to the LP's. ``floor``: the value of some feasible choice.

    Stops at ``give_up`` (monotonic seconds) with the best so far.
    """
    columns = program.configurations
    gpus = max(1, int(program.capacity.sum()))
    by_type = np.full(int(columns.pool.max(initial=0)) + 1, 0.5 * floor / gpus)
    by_type = _descend(_by_type(program, parts), by_type, floor, _TYPE_STEPS, give_up)
    start = by_type[columns.pool] * columns.speed
    steps = max(1, min(_SERVER_STEPS, _VISITS_MAX // len(program.value)))
    server = _descend(_by_server(program), start, floor, steps, give_up)
    job = best_profits(program, server)
    return Prices(server, job, float(job.sum() + server @ program.capacity))


def _descend(dual: _Dual, start: Floats, floor: float, steps: int, give_up: float) -> Floats:
    """Polyak's steps towards ``floor``, shorter whenever the bound does not fall for a while."""
    best, best_at, at, pace, stalled = np.inf, start, start, 1.0, 0
    for _ in range(steps):
        bound, slope = dual(at)
        stalled = 0 if bound < best - _PROGRESS * abs(bound) else stalled + 1
        if bound < best:
            best, best_at = bound, at
        if stalled >= _STALL:
            pace, stalled = pace * _SHRINK, 0
        slope = np.where((at <= 0.0) & (slope > 0.0), 0.0, slope)
        square = float(slope @ slope)
        if square == 0.0 or bound <= floor or monotonic() > give_up:
            break
        at = np.maximum(0.0, at - pace * (bound - floor) / square * slope)
    return best_at


def _by_type(program: Program, parts: Segments) -> _Dual:
    """The dual with one price a GPU type: only each segment's best column can be a best one."""
    weights = program.capacity.astype(np.float64)
    gpus: Floats = np.bincount(program.configurations.pool, weights=weights).astype(np.float64)
    first = np.flatnonzero(np.append(True, parts.job[1:] != parts.job[:-1]))
    lengths = np.diff(np.append(first, len(parts)))

    def dual(prices: Floats) -> tuple[float, Floats]:
        profit = parts.best - prices[parts.pool] * parts.size
        best = np.maximum(np.maximum.reduceat(profit, first), 0.0)
        taken = _first_of(parts.job, np.flatnonzero(profit >= np.repeat(best, lengths)))
        used = np.bincount(parts.pool[taken], weights=parts.size[taken], minlength=len(gpus))
        return float(best.sum() + prices @ gpus), np.subtract(gpus, used)

    return dual


def _first_of(job: Ints, columns: Ints) -> Ints:
    """The first of ``columns`` (sorted by job) of each job."""
    own = job[columns]
    return columns[np.append(True, own[1:] != own[:-1])] if len(columns) else columns


def _by_server(program: Program) -> _Dual:
    """The dual with one price a server; a job's equally good columns share its demand."""
    columns, shapes = program.configurations, program.configurations.shapes
    filled = np.diff(columns.start) > 0
    first, lengths = columns.start[:-1][filled], np.diff(columns.start)[filled]
    capacity = program.capacity.astype(np.float64)

    def dual(prices: Floats) -> tuple[float, Floats]:
        profit = program.value - shapes.prices(prices)[columns.shape]
        best = np.maximum(np.maximum.reduceat(profit, first), 0.0)
        near = best - 1e-9 * best.max(initial=0.0)
        taken = np.flatnonzero(profit >= np.repeat(near, lengths))
        job = np.searchsorted(columns.start, taken, side="right") - 1
        share = 1.0 / np.bincount(job, minlength=columns.jobs)[job]
        ids = columns.shape[taken].astype(np.int64)
        count = shapes.start[ids + 1] - shapes.start[ids]
        part = np.repeat(shapes.start[ids], count) + ramp(count)
        weight = shapes.gpus[part] * np.repeat(share, count)
        used = np.bincount(shapes.server[part], weights=weight, minlength=len(capacity))
        return float(best.sum() + prices @ capacity), np.subtract(capacity, used)

    return dual
