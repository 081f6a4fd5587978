"""A linear relaxation of Hare_Sched: a lower bound, and a start time for each round.

The paper relaxes constraint 8 to Queyranne's inequality (9), a mixed-integer quadratic program.
This is a linear program over intervals of time instead, as Hall, Schulz, Shmoys and Wein (1997)
and Schulz and Skutella (2002) use for jobs of one task: ``f[n, g, l]`` is the share of job n's
training that GPUs of type g do in interval l. Every feasible schedule gives an ``f`` that satisfies
all rows, so the optimum is a lower bound:

- each job is trained completely, and not before it arrives;
- GPUs of a type train no longer in an interval than they are available;
- a round takes at least ``p = min_g (T^c + T^s)``, so at most d / p rounds and two partial ones
  are trained in d seconds, and those two can train at most T^s / (T^c + T^s) above their part;
- C_n >= mean time of training (the interval's begin or the arrival) + half a training and the
  synchronisation of a task + (|R_n| - 1) / 2 times p, which is what follows the mean task;
- C_n >= a_n + the serial time of the rounds, each as long as its tasks on average.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hopsd.errors import SolverError
from hopsd.model.arrays import Floats, Ints
from hopsd.policies.hare.tasks import Instance
from hopsd.solver.backend.linear import Constraints, minimise

INTERVALS = 40
"""Number of intervals: more of them make the bound tighter and the program larger."""

FIRST = 1e-6
"""A round counts as begun once this share of it is trained."""


@dataclass(frozen=True, slots=True)
class RelaxedSequence:
    """The relaxation's solution: a ``lower_bound`` of sum w_n C_n, and ``start`` (tasks,), x."""

    lower_bound: float
    start: Floats


def relax(instance: Instance, intervals: int = INTERVALS) -> RelaxedSequence:
    """Solve the relaxation with HiGHS.

    If HiGHS gives up (times that differ by ten orders of magnitude), each job is assumed to have
    the cluster to itself, which also gives a lower bound, but a worse one.
    """
    if instance.jobs == 0:
        return RelaxedSequence(0.0, np.zeros(0))
    grid = _grid(instance, intervals)
    columns = _Columns.from_instance(instance, grid)
    shares, unit = len(columns.job), float(grid[-1] - grid[0])
    cost = np.concatenate((np.zeros(shares), instance.weight))
    rows = Constraints.stack(
        _all_trained(instance, columns),
        _within_capacity(instance, columns, grid),
        _within_speed(instance, columns, grid),
        _ends(instance, columns, unit),
    )
    try:
        optimum = minimise(cost, rows, np.full(len(cost), np.inf))
    except SolverError:
        optimum = None
    if optimum is None:
        return _alone(instance)
    starts = _starts(instance, columns, grid, optimum.x[:shares])
    return RelaxedSequence(optimum.objective * unit, starts)


def _alone(instance: Instance) -> RelaxedSequence:
    """Run each job round after round on the fastest GPU, as if there were no other job."""
    job = instance.job_of_task
    shortest = _shortest_round(instance)
    ends = instance.arrival + instance.rounds * shortest
    starts = instance.arrival[job] + instance.round_of_task * shortest[job]
    return RelaxedSequence(float(instance.weight @ ends), starts)


@dataclass(frozen=True, slots=True)
class _Columns:
    """One share f per column, with its ``job``, ``kind`` (GPU type), ``interval`` and ``since``,
    the earliest time in the interval at which the job may train; all (columns,).
    """

    job: Ints
    kind: Ints
    interval: Ints
    since: Floats

    @staticmethod
    def from_instance(instance: Instance, grid: Floats) -> _Columns:
        runnable = np.isfinite(instance.train) & (instance.capacity > 0)
        ends = np.append(grid[1:], np.inf)
        open_to = ends[None, :] > instance.arrival[:, None]
        job, kind, interval = np.nonzero(runnable[:, :, None] & open_to[:, None, :])
        since = np.maximum(grid[interval], instance.arrival[job])
        return _Columns(job, kind, interval, since)

    def train(self, instance: Instance) -> Floats:
        """T^c of the column's job on its type."""
        return instance.train[self.job, self.kind]

    def sync(self, instance: Instance) -> Floats:
        return instance.sync[self.job, self.kind]


def _shortest_round(instance: Instance) -> Floats:
    """p (jobs,): the shortest time of a round on any type of the cluster."""
    present = instance.capacity > 0
    shortest: Floats = (instance.train + instance.sync)[:, present].min(axis=1)
    return shortest


def _grid(instance: Instance, intervals: int) -> Floats:
    """The beginnings of the intervals, the last unbounded; dense where completions weigh most.

    The grid covers the fluid makespan, in which each job in turn has all GPUs at once.
    """
    rates = (instance.capacity / instance.train).sum(axis=1)
    fluid = float((instance.rounds * instance.scale / rates).sum())
    longest = float((instance.rounds * _shortest_round(instance)).max())
    begin = min(float(instance.arrival.min()), float(instance.free_from.min()))
    latest = max(float(instance.arrival.max()), float(instance.free_from.min()))
    reach = latest - begin + fluid + longest
    grid: Floats = begin + reach * np.linspace(0.0, 1.0, intervals) ** 2
    return grid


def _all_trained(instance: Instance, columns: _Columns) -> Constraints:
    """sum f >= 1 for every job."""
    entries = np.arange(len(columns.job))
    return Constraints(columns.job, entries, -np.ones(len(entries)), -np.ones(instance.jobs))


def _within_capacity(instance: Instance, columns: _Columns, grid: Floats) -> Constraints:
    """Limit GPU seconds per type and interval but the last, as shares of those available."""
    finite = len(grid) - 1
    types = instance.train.shape[1]
    free = np.clip(grid[1:, None] - np.maximum(grid[:-1, None], instance.free_from), 0.0, None)
    seconds = np.stack([free[:, instance.gpu_type == kind].sum(axis=1) for kind in range(types)])
    entries = np.flatnonzero(columns.interval < finite)
    tasks = (instance.rounds * instance.scale)[columns.job]
    gpu_seconds = (tasks * columns.train(instance))[entries]
    row = columns.kind[entries] * finite + columns.interval[entries]
    limit = seconds.ravel()
    scale = np.where(limit > 0, limit, 1.0)
    return Constraints(row, entries, gpu_seconds / scale[row], limit / scale)


def _within_speed(instance: Instance, columns: _Columns, grid: Floats) -> Constraints:
    """Limit what a job trains per interval, as rounds are serial; only rows that can bind."""
    with np.errstate(invalid="ignore"):
        alone = np.where(
            np.isfinite(instance.train), instance.sync / (instance.train + instance.sync), 0.0
        )
    rounds_alone = alone[:, instance.capacity > 0].max(axis=1)
    begin = np.maximum(grid[None, :-1], instance.arrival[:, None])
    length = np.clip(grid[None, 1:] - begin, 0.0, None)
    share_max = (
        length / _shortest_round(instance)[:, None] + 2 * rounds_alone[:, None]
    ) / instance.rounds[:, None]
    binding = share_max < 1.0
    number = np.full((instance.jobs, len(grid)), -1)
    number[:, :-1][binding] = np.arange(binding.sum())
    row = number[columns.job, columns.interval]
    entries = np.flatnonzero(row >= 0)
    return Constraints(row[entries], entries, np.ones(len(entries)), share_max[binding])


def _ends(instance: Instance, columns: _Columns, unit: float) -> Constraints:
    """The two rows of C_n, whose columns follow the shares, in units of ``unit`` seconds."""
    jobs, shares = instance.jobs, len(columns.job)
    task_tail = 0.5 * columns.train(instance) + columns.sync(instance)
    rounds_behind = (instance.rounds - 1) / 2 * _shortest_round(instance)
    serial = instance.rounds[columns.job] * (columns.train(instance) + columns.sync(instance))
    end_column = shares + np.arange(jobs)
    entries = np.arange(shares)
    return Constraints(
        np.concatenate((columns.job, np.arange(jobs), jobs + columns.job, jobs + np.arange(jobs))),
        np.concatenate((entries, end_column, entries, end_column)),
        np.concatenate(
            ((columns.since + task_tail) / unit, -np.ones(jobs), serial / unit, -np.ones(jobs))
        ),
        np.concatenate((-rounds_behind, -instance.arrival)) / unit,
    )


def _starts(instance: Instance, columns: _Columns, grid: Floats, f: Floats) -> Floats:
    """x (tasks,): when the earlier rounds are trained, at least a shortest round apart."""
    shares = np.zeros((instance.jobs, len(grid)))
    np.add.at(shares, (columns.job, columns.interval), f)
    begin, end = _turns(instance, columns, grid, f, shares)
    shortest = _shortest_round(instance)
    parts = []
    for job in range(instance.jobs):
        trained_share = np.cumsum(shares[job])
        knots = np.column_stack((trained_share - shares[job], trained_share)).ravel()
        moments = np.column_stack((begin[job], end[job])).ravel()
        rounds = np.arange(instance.rounds[job])
        trained_rounds = (rounds + FIRST) / len(rounds) * trained_share[-1]
        start = np.maximum(np.interp(trained_rounds, knots, moments), instance.arrival[job])
        serial = rounds * shortest[job]
        start = np.maximum.accumulate(start - serial) + serial
        parts.append(np.repeat(start, instance.scale[job]))
    return np.concatenate(parts)


def _turns(
    instance: Instance, columns: _Columns, grid: Floats, f: Floats, shares: Floats
) -> tuple[Floats, Floats]:
    """Begin and end of each job's training within each interval: (jobs, intervals).

    The program does not determine them. One job after the other is best for the completion times,
    in the order in which the jobs are trained overall.
    """
    seconds = np.zeros_like(shares)
    tasks = (instance.rounds * instance.scale)[columns.job]
    np.add.at(seconds, (columns.job, columns.interval), f * tasks * columns.train(instance))
    order = np.argsort(shares @ grid, kind="stable")
    offset = np.zeros_like(seconds)
    offset[order] = np.cumsum(seconds[order], axis=0)
    total = np.maximum(seconds.sum(axis=0), np.finfo(float).tiny)
    length = np.diff(grid, append=2 * grid[-1] - grid[0])
    return grid + (offset - seconds) / total * length, grid + offset / total * length
