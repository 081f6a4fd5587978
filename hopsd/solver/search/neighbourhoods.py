"""Neighbourhoods of the local search: the groups of servers that are replanned together.

A plan's distance from the bound splits into losses: a job loses the profit at the current prices by
which its best column exceeds the one it has, a server the price of what it leaves idle. For a job
that loses much, its present servers and those of its best column go into one group.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hopsd.core.placement.program import Program
from hopsd.model.arrays import Bools, Floats, Ints
from hopsd.solver.bound.dual_prices import Prices

# Neighbours stay together in stretches of this many servers, so that spread shapes fit inside.
_STRETCH = 4
# Smaller differences in profit, relative to a job's value, do not decide which column it wants:
# otherwise all jobs would want the cheapest of many servers that are nearly alike.
_JITTER = 0.02
# How many columns are sampled for a job with one block of shapes.
_SAMPLE = 60


@dataclass(frozen=True, slots=True)
class _LosingJob:
    """A job that loses something, and the stretches that its present and best placements touch."""

    loss: float
    stretches: tuple[int, ...]


def group_servers(
    program: Program, choice: Ints, prices: Prices, gpus: int, seed: tuple[int, int]
) -> Ints:
    """Number every server's group; a group has about ``gpus`` idle GPUs of mixed types."""
    rng = np.random.default_rng(seed)
    stretch_of = _stretches(program, rng)
    size = np.bincount(stretch_of, weights=program.idle.astype(np.float64)).astype(np.float64)
    parent = list(range(len(size)))
    for job in _losing_jobs(program, choice, prices, stretch_of, rng):
        first, *further = sorted({_root(parent, stretch) for stretch in job.stretches})
        joint_size = float(size[[first, *further]].sum())
        if further and joint_size <= gpus:
            size[first] = joint_size
            for root in further:
                parent[root] = first
    roots = np.array([_root(parent, stretch) for stretch in range(len(parent))])
    return _pack(roots, size, gpus, rng)[stretch_of]


def _root(parent: list[int], index: int) -> int:
    while parent[index] != index:
        parent[index] = index = parent[parent[index]]
    return index


def _stretches(program: Program, rng: np.random.Generator) -> Ints:
    """Cut each type's servers into stretches of neighbours at a random offset."""
    pool = program.configurations.pool
    stretch_of = np.zeros(len(pool), dtype=np.int64)
    count = 0
    for number in range(int(pool.max(initial=0)) + 1):
        servers = np.flatnonzero(pool == number)
        stretch = (np.arange(len(servers)) + int(rng.integers(_STRETCH))) // _STRETCH
        stretch_of[servers] = count + stretch
        count += int(stretch.max(initial=-1)) + 1
    return stretch_of


def _losing_jobs(
    program: Program,
    choice: Ints,
    prices: Prices,
    stretch_of: Ints,
    rng: np.random.Generator,
) -> list[_LosingJob]:
    """Return the jobs that lose something, the largest losses first."""
    columns = program.configurations
    is_placed = choice >= 0
    loss = prices.job.copy()
    loss[is_placed] -= program.profit(prices.item, choice[is_placed])
    losers = np.flatnonzero((loss > 1e-9 * loss.max(initial=0.0)) & (np.diff(columns.start) > 0))
    order = losers[np.argsort(-loss[losers], kind="stable")]
    losses = []
    for job, best in zip(
        order.tolist(), _best_columns_of(program, prices, order, rng), strict=True
    ):
        pair = [column for column in (best, int(choice[job])) if column >= 0]
        servers = [s for c in pair for s, _ in columns.shapes.parts(int(columns.shape[c]))]
        if servers:
            losses.append(_LosingJob(float(loss[job]), tuple(stretch_of[servers].tolist())))
    return losses


def _best_columns_of(
    program: Program, prices: Prices, jobs: Ints, rng: np.random.Generator
) -> Iterator[int]:
    """Yield the best column of each of ``jobs``, breaking ties and near ties at random."""
    if program.configurations.segments is not None:
        yield from wanted_of_all(program, prices, rng)[jobs].tolist()
        return
    start = program.configurations.start
    for job in jobs.tolist():
        job_columns = slice(int(start[job]), int(start[job + 1]))
        profit = program.profit(prices.item, job_columns)
        yield job_columns.start + int(np.argmax(jitter(profit, program.value[job_columns], rng)))


def wanted_of_all(
    program: Program, prices: Prices, rng: np.random.Generator, usable: Bools | None = None
) -> Ints:
    """Return the best column of every job, (jobs,), -1 for none, out of a sample of those nearly as
    good, breaking ties and near ties at random. Only ``usable`` (shapes,) shapes count.
    """
    columns = program.configurations
    sample = prices.sample(program, _JITTER, _SAMPLE, rng)
    if usable is not None:
        sample = sample[usable[columns.shape[sample]]]
    job = columns.jobs_of(sample)
    profit = jitter(program.profit(prices.item, sample), program.value[sample], rng)
    order = np.lexsort((profit, job))
    best_columns = np.full(columns.jobs, -1, dtype=np.int64)
    # A job's best column comes last in the order, so it is the one that stays written.
    best_columns[job[order]] = sample[order]
    return best_columns


def jitter(profit: Floats, value: Floats, rng: np.random.Generator) -> Floats:
    """Add noise to the ``profit`` of a job's columns that breaks ties and near ties at random."""
    return profit + _JITTER * value * rng.random(len(profit))


def _pack(roots: Ints, size: Floats, gpus: int, rng: np.random.Generator) -> Ints:
    """Pack the sets of joined stretches into groups of about ``gpus`` idle GPUs."""
    group_of_root: dict[int, int] = {}
    group_sizes = [0.0]
    for root in rng.permutation(np.unique(roots)).tolist():
        if group_sizes[-1] and group_sizes[-1] + size[root] > gpus:
            group_sizes.append(0.0)
        group_of_root[root] = len(group_sizes) - 1
        group_sizes[-1] += size[root]
    return np.array([group_of_root[int(root)] for root in roots])
