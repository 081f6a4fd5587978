"""Gavel's optimisation programs: the share of time that each job should get on each GPU type.

Every function takes :class:`Shares` and returns X, shape (jobs, types), with
``sum_t X[m, t] <= 1`` and ``sum_m gpus[m] X[m, t] <= capacity[t]``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq

from hopsd.errors import SolverError
from hopsd.model.arrays import Floats
from hopsd.solver.backend.linear import Constraints, minimise

Flags = npt.NDArray[np.bool_]

TIGHT = 1e-7
"""A row with a price above this is tight in every optimum."""

SLACK = 2e-7
"""Relative loss allowed on a level already reached, as HiGHS satisfies rows up to 1e-7."""

TOLERANCE = 1e-7
"""Relative change of the fairness bound at which the iteration ends."""


@dataclass(frozen=True, slots=True)
class Shares:
    """The input of Gavel's programs.

    ``rates`` (jobs, types): samples/s on the type at the job's size, 0 if it cannot run. (jobs,):
    ``gpus``, ``remaining`` (samples), ``elapsed_seconds`` (since submission), and ``past`` (seconds
    that the work done would have taken on 1/n of the cluster, with n at that time). ``capacity``
    (types,): in GPUs.
    """

    rates: Floats
    gpus: Floats
    capacity: Floats
    remaining: Floats
    elapsed_seconds: Floats
    past: Floats

    @property
    def equal_rates(self) -> Floats:
        """Samples/s with time divided over the types as the cluster's GPUs are: (jobs,)."""
        present = self.capacity / max(1.0, float(self.capacity.sum()))
        equal: Floats = np.maximum(self.rates @ present, 1e-12)
        return equal

    @property
    def alone_seconds(self) -> Floats:
        """Run time on 1/n of the cluster, n being the number of jobs then and now: (jobs,)."""
        alone: Floats = self.past + self.remaining / self.isolated_rates(len(self.gpus))
        return alone

    def isolated_rates(self, jobs: Floats | int) -> Floats:
        """Samples/s of each job on one of ``jobs`` equal parts of the cluster: (jobs,)."""
        part = np.minimum(1.0, self.capacity.sum() / (jobs * self.gpus))
        rates: Floats = np.maximum(self.equal_rates * part, 1e-12)
        return rates


def max_min(shares: Shares) -> Floats:
    """Weighted max-min of normalised throughput, lexicographic (section 4.1, water filling).

    A job's level is ``rate(X) / equal rate * gpus``. The plain program is degenerate, since it does
    not determine what jobs above the minimum get. So levels are raised together, and those that
    cannot rise any more (rows with a price) are frozen, until none is left. Equal jobs are one row
    with a multiplicity.
    """
    value = shares.rates / shares.equal_rates[:, None] * shares.gpus[:, None]
    kinds, kind_of, count = np.unique(
        np.column_stack((value, shares.gpus)), axis=0, return_inverse=True, return_counts=True
    )
    value, gpus = kinds[:, :-1], kinds[:, -1]
    active = value.max(axis=1) > 0
    level = np.zeros(len(value))
    final = ~active
    x = np.zeros_like(value)
    while active.any():
        x, z, prices = _raise_levels(value, gpus * count, shares.capacity, active, level)
        tight = active & (prices > TIGHT * max(1.0, float(prices.max())))
        if not tight.any():
            tight = active
        level[tight] = z
        final |= tight
        active = ~final
    result: Floats = x[kind_of.ravel()]
    return result


def _raise_levels(
    value: Floats, gpus: Floats, capacity: Floats, active: Flags, level: Floats
) -> tuple[Floats, float, Floats]:
    """Find the largest z with value.x >= z for the active rows, and >= level for the others.

    Returns X, z, and each row's price.
    """
    floor = np.where(active, 0.0, -level * (1.0 - SLACK))
    x, z, prices = _largest_z(value, gpus, capacity, active.astype(float), floor)
    return x, z, prices[-len(value) :]


def _largest_z(
    value: Floats, gpus: Floats, capacity: Floats, weight: Floats, floor: Floats
) -> tuple[Floats, float, Floats]:
    """Find the largest z with ``weight z - value.x <= floor`` in every row, X within its limits."""
    jobs, types = value.shape
    cost = np.zeros(jobs * types + 1)
    cost[-1] = -1.0
    with_z = np.flatnonzero(weight)
    levels = _per_job(-value, floor)
    levels = Constraints(
        np.concatenate((levels.row, with_z)),
        np.concatenate((levels.column, np.full(len(with_z), jobs * types))),
        np.concatenate((levels.value, weight[with_z])),
        floor,
    )
    rows = Constraints.stack(_limits(gpus, capacity, jobs), levels)
    upper = np.concatenate(((value > 0).ravel().astype(float), [np.inf]))
    optimum = minimise(cost, rows, upper)
    if optimum is None:
        raise SolverError("no share of time reaches levels that were reached before")
    return optimum.x[:-1].reshape(jobs, types), float(optimum.x[-1]), optimum.prices


def _per_job(value: Floats, limit: Floats) -> Constraints:
    """Build one row per job over its own X."""
    jobs, types = value.shape
    columns = np.arange(jobs * types)
    return Constraints(columns // types, columns, value.ravel(), limit)


def _limits(gpus: Floats, capacity: Floats, jobs: int) -> Constraints:
    """Limit the time of each job and the GPUs of each type."""
    types = len(capacity)
    columns = np.arange(jobs * types)
    time = _per_job(np.ones((jobs, types)), np.ones(jobs))
    return Constraints.stack(
        time, Constraints(columns % types, columns, np.repeat(gpus, types), capacity)
    )


def _largest_ratio(shares: Shares, demand: Floats) -> Floats:
    """Find X with the largest z such that rate(X)[m] >= z * demand[m] for all jobs that can run."""
    runnable = (shares.rates.max(axis=1) > 0) & (demand > 0)
    scale = np.where(runnable, demand, 1.0)
    value = shares.rates / scale[:, None]
    zeros = np.zeros(len(demand))
    return _largest_z(value, shares.gpus, shares.capacity, runnable.astype(float), zeros)[0]


def makespan(shares: Shares) -> Floats:
    """Minimise the longest remaining run time: rate(X)[m] >= remaining[m] / T (section 4.2).

    This does not determine the shares of jobs that end earlier; :func:`_largest_sum` chooses among
    the optima.
    """
    x = _largest_ratio(shares, shares.remaining)
    ratio = (shares.rates * x).sum(axis=1) / shares.remaining
    min_ratio = float(ratio[shares.rates.max(axis=1) > 0].min(initial=np.inf))
    return _largest_sum(shares, min_ratio * shares.remaining) if np.isfinite(min_ratio) else x


def finish_time_fairness(shares: Shares) -> Floats:
    """Minimise the largest rho = (elapsed + remaining / rate(X)) / time alone (section 4.2).

    For a given rho each job needs the rate ``remaining / (rho * alone - elapsed)``, and a program
    finds by how much these rates can be exceeded or are missed. The root of this excess, between
    the rho of equal rates and that of a job alone on its fastest type, is the optimum (Brent's
    method, a handful of programs). Fixed-point iteration takes hundreds of programs if one job has
    little left to do. Among the optima, :func:`_largest_sum` chooses one.
    """
    alone, rates = shares.alone_seconds, shares.rates
    runnable = (rates.max(axis=1) > 0) & (shares.remaining > 0)
    x = _largest_ratio(shares, shares.equal_rates)
    high = worst_rho(shares, x)
    if not runnable.any() or not np.isfinite(high):
        return x
    fastest = rates[runnable].max(axis=1)
    low = float(
        (
            (shares.elapsed_seconds[runnable] + shares.remaining[runnable] / fastest)
            / alone[runnable]
        ).max()
    )

    def excess(rho: float) -> float:
        nonlocal x, high
        demand = np.where(runnable, shares.remaining / (rho * alone - shares.elapsed_seconds), 0.0)
        largest_ratio = _largest_ratio(shares, demand)
        if (worst_ratio := worst_rho(shares, largest_ratio)) < high:
            x, high = largest_ratio, worst_ratio
        wanting = demand > 0
        return float(np.log(((rates * largest_ratio).sum(axis=1)[wanting] / demand[wanting]).min()))

    top = high
    if low < top * (1.0 - TOLERANCE) and excess(low) < 0.0 < excess(top):
        brentq(excess, low, top, xtol=TOLERANCE * top)
    min_share = np.where(
        runnable,
        shares.remaining / np.where(runnable, high * alone - shares.elapsed_seconds, 1.0),
        0,
    )
    return _largest_sum(shares, min_share)


def worst_rho(shares: Shares, x: Floats) -> float:
    """Largest finish-time fairness ratio under X, over the jobs that can run."""
    runnable = shares.rates.max(axis=1) > 0
    rate = (shares.rates * x).sum(axis=1)
    with np.errstate(divide="ignore"):
        rho = (shares.elapsed_seconds + shares.remaining / rate) / shares.alone_seconds
    return float(rho[runnable].max(initial=0.0))


def max_sum(shares: Shares) -> Floats:
    """Maximise the sum of throughputs, each relative to the job's equal rate."""
    return _largest_sum(shares, np.zeros(len(shares.gpus)))


def _largest_sum(shares: Shares, min_share: Floats) -> Floats:
    """Find X with the largest sum of relative throughputs among those with rate(X)[m] >=
    min_share[m], (jobs,). Some X is known to satisfy this.
    """
    jobs, types = shares.rates.shape
    value = shares.rates / shares.equal_rates[:, None]
    upper = (shares.rates > 0).ravel().astype(float)
    rows = _limits(shares.gpus, shares.capacity, jobs)
    if min_share.any():
        # Scale rows to a right side of 1 where it matters, as HiGHS satisfies rows up to 1e-7.
        unit = np.maximum(min_share, 1e-3 * shares.equal_rates)
        floor = _per_job(-shares.rates / unit[:, None], -min_share / unit * (1.0 - SLACK))
        rows = Constraints.stack(rows, floor)
    optimum = minimise(-value.ravel(), rows, upper)
    if optimum is None:
        raise SolverError("no share of time reaches rates that were reached before")
    return optimum.x.reshape(jobs, types)
