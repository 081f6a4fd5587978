"""Assign jobs to positions on machines: min-cost bipartite matching (AlloX, section 3.1).

A job that is followed by ``place - 1`` others on its machine delays them all: it adds ``place``
times its run time to the sum of completion times. The wait for the machine, which is busy until
``ready``, is added once (section 3.2).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hopsd.model.arrays import Floats, Ints


@dataclass(frozen=True, slots=True)
class Queues:
    """The matching problem: n jobs and m machines, each of one of t kinds.

    ``seconds`` (n, t) are run times, infinite where a job cannot run; at least one entry of a row
    is finite. ``kind`` (m,) is each machine's kind, ``ready`` (m,) when it is free, ``arrival``
    (n,) when a job arrives. ``width`` (n,) is the number of machines, possibly fractional, that a
    job takes at once, ``earliest`` (n, t) when that many are free together.
    """

    seconds: Floats
    kind: Ints
    ready: Floats
    arrival: Floats
    width: Floats
    earliest: Floats

    @classmethod
    def build(
        cls,
        seconds: npt.ArrayLike,
        kind: npt.ArrayLike,
        ready: npt.ArrayLike | None = None,
        arrival: npt.ArrayLike | None = None,
    ) -> Queues:
        """Build the problem of jobs that take one machine each, as in the paper.

        By default all machines and jobs are there at time 0.
        """
        table = np.asarray(seconds, dtype=float)
        machines = np.asarray(kind, dtype=np.int64)
        return cls(
            table,
            machines,
            np.zeros(len(machines)) if ready is None else np.asarray(ready, dtype=float),
            np.zeros(len(table)) if arrival is None else np.asarray(arrival, dtype=float),
            np.ones(len(table)),
            np.full(table.shape, -np.inf),
        )


@dataclass(frozen=True, slots=True)
class Matching:
    """``machine`` and ``place`` of each job, (n,); place 1 is its machine's last job.

    ``cost`` is the sum of completion times, each counted from the job's arrival.
    """

    machine: Ints
    place: Ints
    cost: float

    def first(self, machine: int) -> int | None:
        """Return the job that runs first on ``machine``, None if it has no jobs."""
        positions = np.flatnonzero(self.machine == machine)
        return int(positions[self.place[positions].argmax()]) if len(positions) else None


def match(queues: Queues) -> Matching:
    """Find the least-cost matching.

    A job of ``width`` w is one entry of one queue and delays those behind it like w jobs, since it
    takes the time of w machines. For jobs of one machine each this is the paper's Q, and exact.
    """
    from scipy.optimize import linear_sum_assignment  # noqa: PLC0415  # slow to import

    count = len(queues.seconds)
    machines, places, costs = [], [], []
    for kind in range(queues.seconds.shape[1]):
        members = np.flatnonzero(queues.kind == kind)
        rank, place = positions(queues.ready[members], count)
        machines.append(members[np.argsort(queues.ready[members], kind="stable")][rank])
        places.append(place)
        costs.append(_costs(queues, kind, queues.ready[machines[-1]], place))
    machine, place, cost = np.concatenate(machines), np.concatenate(places), np.hstack(costs)
    rows, columns = linear_sum_assignment(cost)
    total = float(cost[rows, columns].sum() - queues.arrival.sum())
    return Matching(machine[columns], place[columns], total)


def _costs(queues: Queues, kind: int, ready: Floats, place: Ints) -> Floats:
    seconds, earliest = queues.seconds[:, [kind]], queues.earliest[:, [kind]]
    followers = 1 + (place[None, :] - 1) * queues.width[:, None]
    costs: Floats = seconds * followers + np.maximum(ready[None, :], earliest)
    return costs


def positions(ready: Floats, jobs: int) -> tuple[Ints, Ints]:
    """Return the positions on one kind's machines that suffice for an optimal matching.

    A position is dominated by one of the same kind with no larger place and no later machine. If
    ``jobs`` others dominate it, one of those stays free, so the position is not needed. Returns the
    ranks of machines by ``ready``, and places, both (s,).
    """
    times = np.sort(ready)
    rank = np.arange(len(times))
    as_early = np.searchsorted(times, times, side="right")
    counts = np.where(rank < jobs, (jobs - rank - 1) // np.maximum(as_early, 1) + 1, 0)
    ranks = np.repeat(rank, counts)
    starts = np.repeat(np.cumsum(counts) - counts, counts)
    return ranks, np.arange(len(ranks)) - starts + 1
