"""AlloX's view of a cluster: when each GPU or CPU is free, and each job's run time on each type.

The policies that choose among GPU types and never preempt share this: AlloX and the policies it is
compared with. A job is rigid: it takes :meth:`Servers.rigid` devices of one type, on one server if
one could hold it, else on whole servers and one more for the remainder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hopsd.core.queue.competing import competing_jobs
from hopsd.core.queue.priority import ages, remaining_seconds
from hopsd.core.speed.throughput import configuration_throughput
from hopsd.model.allocation import Allocation
from hopsd.model.arrays import Floats, Ints
from hopsd.model.ids import GpuType, JobId, NodeName, job_order
from hopsd.model.job import Job, Node
from hopsd.model.plan import Snapshot
from hopsd.model.reason import Reason, ReasonCode
from hopsd.policies.placing import Servers

Parts = tuple[tuple[int, int], ...]
"""Pairs of a server of one type, as a row, and the number of devices on it."""

OVERRUN_SHARE = 1e-3
"""Minimum share of its run time that a job is expected to need still."""


@dataclass(frozen=True, slots=True)
class Work:
    """The waiting jobs: n of them in order of submission, over t GPU types.

    ``gpus`` (n,): devices that each takes. ``seconds`` (n, t): remaining run time on each type,
    infinite where the job cannot run. ``capacity`` (t,): devices, idle or not.
    """

    jobs: tuple[Job, ...]
    gpus: Ints
    seconds: Floats
    types: tuple[GpuType, ...]
    capacity: Ints


@dataclass(frozen=True, slots=True)
class Running:
    """A running job: its GPUs and their type, the time left, and the same on each type (t,)."""

    job: Job
    gpus: int
    kind: int
    left_seconds: float
    seconds: Floats


class WorkAndMachines:
    """A snapshot as work and machines."""

    def __init__(self, snapshot: Snapshot) -> None:
        servers = Servers(snapshot)
        self._servers = servers
        self._types = tuple(servers.types)
        self._age = ages(snapshot.jobs, snapshot.nodes)
        self._node_types = {node.name: node.gpu_type for node in snapshot.nodes}
        total = sum(servers.types.values())
        self._present = [servers.types[t] / total for t in self._types]
        self.waiting: dict[JobId, Reason] = {}
        self.placements: dict[JobId, Allocation] = {}
        self.running = [self._running(job) for job in snapshot.jobs if job.running]
        self.work = self._work(snapshot)
        self.machines = Machines(snapshot, self._types, self.running)

    def _work(self, snapshot: Snapshot) -> Work:
        jobs, gpus, seconds = [], [], []
        for job in sorted(competing_jobs(snapshot), key=lambda j: (j.submit, job_order(j.id))):
            if job.running:
                self.placements[job.id] = job.running
                continue
            size = self._servers.rigid(job)
            if size is None:
                text = "no server or group of servers of a type that it can use is large enough"
                self.waiting[job.id] = Reason(ReasonCode.NO_CONFIGURATION, text)
            else:
                jobs.append(job)
                gpus.append(size)
                seconds.append(self._seconds(job, size))
        return Work(
            tuple(jobs),
            np.array(gpus, dtype=np.int64),
            np.array(seconds).reshape(len(jobs), len(self._types)),
            self._types,
            np.array([self._servers.types[t] for t in self._types], dtype=np.int64),
        )

    def _seconds(self, job: Job, gpus: int) -> list[float]:
        rates = [self._servers.rate_on(job, t, gpus) for t in self._types]
        remaining_samples = self._samples_left(job, rates, None)
        return [remaining_samples / rate if rate > 0 else np.inf for rate in rates]

    def _running(self, job: Job) -> Running:
        gpus = job.running.gpus
        rates = [self._servers.rate_on(job, t, gpus) for t in self._types]
        kind = self._types.index(self._node_types[job.running.nodes[0]])
        current_rate = configuration_throughput(job, job.running, self._node_types)
        rates[kind] = current_rate = current_rate or rates[kind] or 1.0
        remaining_samples = self._samples_left(job, rates, current_rate)
        times = np.array([remaining_samples / rate if rate > 0 else np.inf for rate in rates])
        return Running(job, gpus, kind, remaining_samples / current_rate, times)

    def _samples_left(self, job: Job, rates: Sequence[float], current_rate: float | None) -> float:
        """Remaining samples. If the job's total is unknown, this is what the mean type trains in
        the rest of the expected run time; a job that reports no progress is assumed to have
        trained at its current rate for as long as it ran.
        """
        mean = sum(share * rate for share, rate in zip(self._present, rates, strict=True))
        if job.samples is None:
            return remaining_seconds(job, self._age[job.id]) * (mean or 1.0)
        trained_samples = job.samples_done or job.run_seconds * (current_rate or mean)
        return max(job.samples - trained_samples, OVERRUN_SHARE * job.samples)


class Machines:
    """When each device is free: per type a matrix (servers, devices) of times, rows ascending.

    Devices held by jobs outside the snapshot never become free.
    """

    def __init__(
        self, snapshot: Snapshot, types: Sequence[GpuType], running: Sequence[Running]
    ) -> None:
        self.now = snapshot.now
        self._nodes: list[list[Node]] = [[] for _ in types]
        self._row: dict[NodeName, int] = {}
        for node in snapshot.nodes:
            kind = types.index(node.gpu_type)
            self._row[node.name] = len(self._nodes[kind])
            self._nodes[kind].append(node)
        self._sizes = [np.array([node.gpus for node in nodes]) for nodes in self._nodes]
        self._idle = [np.array([node.idle for node in nodes]) for nodes in self._nodes]
        self._free = [np.full((len(s), int(s.max())), np.inf) for s in self._sizes]
        for free, idle in zip(self._free, self._idle, strict=True):
            free[np.arange(free.shape[1]) < idle[:, None]] = self.now
        for run in running:
            for name, gpus in run.job.running:
                free = self._free[run.kind][self._row[name]]
                free[np.flatnonzero(np.isinf(free))[:gpus]] = self.now + run.left_seconds
                free.sort()

    def ready(self, kind: int) -> Floats:
        """Times when devices of a type become free; devices without a known time are left out."""
        times = self._free[kind].ravel()
        finite_times: Floats = times[np.isfinite(times)]
        return finite_times

    def unclaimed_devices(self, kind: int) -> int:
        """The number of devices of a type that are idle and not reserved."""
        return int((self._free[kind] <= self.now).sum())

    @property
    def idle(self) -> int:
        """The number of idle devices of all types, reserved or not."""
        return int(sum(idle.sum() for idle in self._idle))

    def soonest(self, gpus: int) -> list[float]:
        """For each type, the earliest time when ``gpus`` devices are free together."""
        return [
            max(self.now, float(free[:, gpus - 1].min()))
            if gpus <= free.shape[1]
            else self.earliest(kind, gpus)[0]
            for kind, free in enumerate(self._free)
        ]

    def earliest(self, kind: int, gpus: int) -> tuple[float, Parts]:
        """Find the earliest time when ``gpus`` devices of a type are free together, and where.

        Among servers that are free equally early, this takes the one with least to spare.
        """
        free, sizes = self._free[kind], self._sizes[kind]
        if gpus <= free.shape[1]:
            times = np.maximum(free[:, gpus - 1], self.now)
            first = float(times.min())
            candidates = np.flatnonzero(times == first)
            row = int(candidates[(free[candidates] <= first).sum(axis=1).argmin()])
            return first, ((row, gpus),)
        times_of_size = free[np.arange(len(sizes)), sizes - 1]
        parts: list[tuple[int, int]] = []
        missing, first = gpus, self.now
        for row in np.lexsort((-sizes, times_of_size)).tolist():
            part = min(missing, int(sizes[row]))
            parts.append((row, part))
            first = max(first, float(free[row, part - 1]))
            missing -= part
            if not missing:
                return first, tuple(parts)
        return np.inf, ()

    def start(self, kind: int, parts: Parts, end: float) -> Allocation:
        """Allocate idle devices."""
        self.reserve(kind, parts, end)
        return self._give(kind, parts)

    def keep(self, kind: int, allocation: Allocation) -> Allocation:
        """Allocate the devices that a job held before, with no known end."""
        return self.start(kind, tuple((self._row[n], gpus) for n, gpus in allocation), np.inf)

    def reserve(self, kind: int, parts: Parts, end: float) -> None:
        """Reserve the devices that become free first on each of the servers."""
        for row, gpus in parts:
            free = self._free[kind][row]
            free[:gpus] = end
            free.sort()

    def fill(self, kind: int, row: int, gpus: int) -> Allocation | None:
        """Allocate idle but reserved devices of a server; None if there are too few."""
        unreserved_gpus = int(self._idle[kind][row]) - int(
            (self._free[kind][row] <= self.now).sum()
        )
        return self._give(kind, ((row, gpus),)) if gpus <= unreserved_gpus else None

    def _give(self, kind: int, parts: Parts) -> Allocation:
        for row, gpus in parts:
            self._idle[kind][row] -= gpus
        return Allocation.of({self._nodes[kind][row].name: gpus for row, gpus in parts})
