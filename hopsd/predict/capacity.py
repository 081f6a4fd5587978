"""Changes in capacity that hops' jobs do not cause: reservations, maintenance, plain Slurm jobs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hopsd.model.arrays import Floats
from hopsd.model.reading import NodeReading, Reading
from hopsd.predict.limit_share import LimitShares


@dataclass(frozen=True, slots=True)
class PlainJob:
    """A running job that hops does not manage: its GPUs, and how long it has run and its time limit
    in seconds.
    """

    gpus: int
    ran: float
    limit: float


@dataclass(frozen=True, slots=True)
class Capacity:
    """Known changes in capacity. Each of ``changes`` has the seconds from now and the GPUs that
    certainly come then (or go, if negative). The ``plain`` jobs return their GPUs when they end.
    """

    changes: tuple[tuple[float, int], ...] = ()
    plain: tuple[PlainJob, ...] = ()

    def draw(
        self, samples: int, rng: np.random.Generator, limits: LimitShares
    ) -> tuple[Floats, Floats]:
        """Draw times in seconds from now (samples, changes), and GPUs (changes,).

        Plain jobs are assumed to use the same share of their time limits as hops' jobs. Plain jobs
        that may follow are not known.
        """
        change_times = np.array([time for time, _ in self.changes], dtype=np.float64)
        times = np.broadcast_to(change_times, (samples, len(change_times)))
        gpus = [gpus for _, gpus in self.changes] + [job.gpus for job in self.plain]
        if self.plain:
            limit = np.array([job.limit for job in self.plain])
            ran = np.array([job.ran for job in self.plain])
            share = limits.draw(ran / limit, samples, rng)
            times = np.concatenate([times, np.maximum(share * limit - ran, 1.0)], axis=1)
        return times, np.array(gpus, dtype=np.float64)


NO_CHANGE = Capacity()


def capacity_of(reading: Reading) -> Capacity:
    """The capacity according to a reading."""
    reservations = frozenset(name for job in reading.jobs for name in job.reservations if name)
    changes = [
        change for node in reading.nodes for change in _changes(node, reading.now, reservations)
    ]
    foreign_gpus = {node.name: node.foreign_gpus for node in reading.nodes if node.usable}
    remaining = sum(foreign_gpus.values())
    plain = []
    for job in reading.other_holders:
        gpus = min(job.gpus, remaining)
        if gpus > 0 and job.time_limit_seconds and job.start > 0.0:
            ran = max(0.0, reading.now - job.start)
            plain.append(PlainJob(gpus, ran, max(job.time_limit_seconds, ran + 1.0)))
            remaining -= gpus
    return Capacity(tuple(sorted(changes)), tuple(plain))


def _changes(
    node: NodeReading, now: float, reservations: frozenset[str]
) -> Iterator[tuple[float, int]]:
    """Yield the changes of one node. ``reservations`` are those that hops' jobs ask for, so that
    these jobs may use the node.
    """
    until = node.reserved_until
    gpus = node.gpus - node.foreign_gpus
    if node.reservation and reservations.isdisjoint(node.reservation.split(",")):
        if node.usable:
            yield 0.0, -gpus
        if until is not None:
            yield until - now, gpus if node.usable else node.gpus
    elif node.usable and node.reserved_from is not None:
        yield node.reserved_from - now, -gpus
        if until is not None:
            yield until - now, gpus
