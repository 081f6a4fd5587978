"""A plan by diving: the most valuable jobs are placed one after another.

Each round takes a few steps (see :mod:`hopsd.solver.bound.primal_dual`), fixes the columns that
carry the most value in the solution, drops those that no longer fit, and goes on from there. On
2,048 fragmented GPUs a dive takes 0.3 to 0.6 CPU s; one by linear programs with all cuts takes 13.
"""

from __future__ import annotations

from math import inf
from time import monotonic

import numpy as np

from hopsd.core.placement.program import Program
from hopsd.model.arrays import Floats, Ints
from hopsd.solver.bound.primal_dual import Packing, approach

# Steps in the first round and in each later one.
_FIRST, _STEPS = 400, 300
# A column with at least this share counts as whole, one with at most the second as not chosen. A
# round takes columns in order of value until it has taken its number of fractional ones: one, and
# one more for every 300 that there were in the first round.
_WHOLE, _POSITIVE, _FRACTIONAL_EACH = 0.95, 1e-6, 300
# All dives but the first multiply values by random factors within 1 ± this spread.
_SPREAD = 0.25


def dive(
    program: Program,
    columns: Ints,
    packing: Packing,
    prices: Floats,
    x: Floats,
    gpus: float = inf,
    give_up: float = inf,
    rng: np.random.Generator | None = None,
) -> Ints:
    """Return a choice (jobs,) among ``packing``'s ``columns`` (sorted).

    Starts from ``prices`` (rows of the packing,) and the solution ``x`` (n,). With ``rng`` each
    dive makes another choice. Stops once the choice takes ``gpus`` GPUs or more, and at ``give_up``
    (monotonic seconds), with what is fixed by then.
    """
    choice = np.full(program.configurations.jobs, -1, dtype=np.int64)
    capacity, limit = program.capacity.copy(), packing.limit
    still_open, part, steps, at_once = np.arange(len(columns)), packing, _FIRST, 0
    idle = slice(0, len(program.idle))
    least = program.idle.sum() - gpus
    while len(still_open) and capacity[idle].sum() > least and monotonic() < give_up:
        saddle = approach(part, prices, x, steps, give_up)
        prices, x, steps = saddle.prices, saddle.x, _STEPS
        if not at_once:
            fractional = np.count_nonzero((x > _POSITIVE) & (x < _WHOLE))
            at_once = 1 + int(fractional) // _FRACTIONAL_EACH
        worth = part.value * x if rng is None else part.value * x * _factors(rng, len(x))
        choices = _take(program, columns[still_open], worth, x, capacity, at_once)
        if not len(choices):
            break
        new_columns = still_open[choices]
        choice[packing.job[new_columns]] = columns[new_columns]
        limit = np.maximum(0.0, limit - packing.by_column[new_columns].sum(axis=0))
        items = program.items(columns[still_open]).reshape(-1, len(still_open))
        fits = np.logical_and.reduce(program.configurations.demands.fit(capacity)[items])
        still_fits = fits & (choice[part.job] < 0)
        still_open, x = still_open[still_fits], x[still_fits]
        part = packing.select(still_open, limit)
    return choice


def _factors(rng: np.random.Generator, count: int) -> Floats:
    return rng.uniform(1 - _SPREAD, 1 + _SPREAD, count)


def _take(
    program: Program, columns: Ints, worth: Floats, x: Floats, capacity: Ints, fractional: int
) -> Ints:
    """Take the most valuable of ``columns`` that fit together, one for each job and at most
    ``fractional`` of them fractional, and subtract them from ``capacity`` (rows,). Returns their
    positions.
    """
    job, choices, placed_jobs = program.configurations.jobs_of(columns), [], set()
    for position in np.argsort(-worth, kind="stable")[: np.count_nonzero(worth)].tolist():
        if fractional <= 0 and x[position] < _WHOLE:
            break
        amounts = program.usage(columns[position : position + 1])
        if job[position] not in placed_jobs and np.all(amounts <= capacity):
            capacity -= amounts
            fractional -= int(x[position] < _WHOLE)
            choices.append(position)
            placed_jobs.add(job[position])
    return np.array(choices, dtype=np.int64)
