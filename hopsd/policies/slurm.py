"""First come, first served with conservative backfill, as plain Slurm schedules.

Like ``sched/backfill`` (slurm.conf(5), SchedulerType): every job of the queue, in order of
submission, gets the earliest start that delays no job before it, and those that can start now
do. Jobs are rigid and never preempted. They take one server or, above a server's size, whole
servers, and whatever GPU type is free first, since Slurm knows nothing about their speed. Run times
are assumed to be known: the time limit if there is one, else the time that the job really needs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import inf, nextafter
from typing import ClassVar

from hopsd.core.queue.competing import competing_jobs
from hopsd.core.queue.priority import DEFAULT_AGE_SECONDS
from hopsd.core.speed.throughput import configuration_throughput, per_gpu
from hopsd.model.allocation import Allocation
from hopsd.model.ids import GpuType, JobId, NodeName, job_order
from hopsd.model.job import Job, Node
from hopsd.model.plan import Plan, PlanSettings, Snapshot
from hopsd.model.reason import Reason, ReasonCode
from hopsd.policies.placing import Servers
from hopsd.policies.timetable import Gain, Timetable

_FAIR_SHARE_WEIGHT, _AGE_WEIGHT, _MAX_AGE_SECONDS = 10_000.0, 1_000.0, 7 * 86400.0
"""Typical settings of priority/multifactor: PriorityWeightFairshare, PriorityWeightAge and the
default PriorityMaxAge.
"""

MAX_TESTED_JOBS = 500
"""The number of queued jobs considered, like bf_max_job_test in slurm.conf(5)."""


@dataclass(frozen=True, slots=True)
class Backfill:
    """One backfill pass over the queue whenever something happens, as in Slurm.

    With ``multifactor`` the queue is ordered by fair share and age instead of submission.
    """

    settles: ClassVar[bool] = True
    steady: ClassVar[bool] = True
    multifactor: bool = False

    def __call__(self, snapshot: Snapshot, settings: PlanSettings) -> Plan:  # noqa: ARG002
        """Start what can start now without delaying anybody before it in the queue."""
        jobs = competing_jobs(snapshot)
        servers = Servers(snapshot)
        placements = {job.id: job.running for job in jobs if job.running}
        for allocation in placements.values():
            servers.take(allocation)
        queue = sorted(
            (j for j in jobs if not j.running),
            key=lambda j: (-self._factor(j), j.submit, job_order(j.id)),
        )
        needs = {job.id: servers.rigid(job) for job in queue}
        starts = _allocations_to_start(snapshot, servers.idle, queue[:MAX_TESTED_JOBS], needs)
        waiting = {
            job.id: _NOWHERE_REASON if needs[job.id] is None else _LATER
            for job in queue
            if job.id not in starts
        }
        idle_gpus = servers.left - sum(allocation.gpus for allocation in starts.values())
        return Plan(
            placements=placements | starts,
            window=tuple(job.id for job in queue),
            fragments=idle_gpus if waiting else 0,
            waiting=waiting,
        )

    def _factor(self, job: Job) -> float:
        if not self.multifactor:
            return 0.0
        age = min(1.0, job.wait_seconds / _MAX_AGE_SECONDS)
        return _FAIR_SHARE_WEIGHT * job.share + _AGE_WEIGHT * age


_NOWHERE_REASON = Reason(
    ReasonCode.NO_CONFIGURATION,
    "no server or group of servers of a type that it can use is large enough",
)
_LATER = Reason(
    ReasonCode.LOST_TO_OTHERS, "its turn comes when GPUs that jobs before it wait for are free"
)


def _allocations_to_start(
    snapshot: Snapshot,
    idle: Mapping[NodeName, int],
    queue: Sequence[Job],
    needs: Mapping[JobId, int | None],
) -> dict[JobId, Allocation]:
    """Find the jobs that start now, and where, if every job in turn gets its earliest place.

    Free places only get fewer, so a job that could not start now if it were next cannot start in
    its turn either, and places of jobs behind the last one that could do not matter.
    """
    times = _RunTimes(snapshot.nodes)
    table = Timetable(snapshot.now, snapshot.nodes, idle, times.gains(snapshot))
    tasks = [(job, gpus) for job in queue if (gpus := needs[job.id]) is not None]

    def could_start(job: Job, gpus: int) -> bool:
        """Whether the job could start now if it were next."""
        free = table.free_until(gpus)
        seconds = times.by_type(job, gpus) if free else {}
        return any(snapshot.now + seconds[t] <= end for t, end in free.items() if t in seconds)

    candidates = list(range(len(tasks)))
    starts = {}
    for i, (job, gpus) in enumerate(tasks):
        while candidates and not could_start(*tasks[candidates[-1]]):
            candidates.pop()
        if not candidates or candidates[-1] < i:
            break
        place = table.soonest(gpus, times.by_type(job, gpus))
        if place is not None:
            table.reserve(place)
            if place.start == snapshot.now:
                starts[job.id] = place.allocation
    return starts


class _RunTimes:
    """How long jobs run, in seconds."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._types = {node.name: node.gpu_type for node in nodes}
        self._names: dict[GpuType, list[NodeName]] = {}
        sizes: dict[GpuType, list[int]] = {}
        for node in nodes:
            self._names.setdefault(node.gpu_type, []).append(node.name)
            sizes.setdefault(node.gpu_type, []).append(node.gpus)
        self._rate_sums = {t: list(accumulate(sorted(rates)[::-1])) for t, rates in sizes.items()}
        """GPUs of a type's largest server, of its two largest servers, and so on."""
        self._rates: dict[object, dict[GpuType, float]] = {}
        self._slowest: dict[tuple[int, GpuType], float] = {}

    def gains(self, snapshot: Snapshot) -> dict[NodeName, list[Gain]]:
        """When running jobs release their GPUs: later than now, even if their time is over."""
        gains_by_node: dict[NodeName, list[Gain]] = {}
        next_instant = nextafter(snapshot.now, inf)
        for job in snapshot.jobs:
            if job.running:
                rate = configuration_throughput(job, job.running, self._types)
                end = max(next_instant, snapshot.now + _remaining_seconds(job, rate))
                for node, gpus in job.running:
                    gains_by_node.setdefault(node, []).append((end, gpus))
        return gains_by_node

    def by_type(self, job: Job, gpus: int) -> dict[GpuType, float]:
        """Run times on the slowest server of each type that can hold the job, a safe estimate like
        a time limit.
        """
        key = (id(job.throughput), id(job.server_factor), job.rules.min_gpus, gpus)
        if key not in self._rates:
            rates = {t: self._rate(job, gpus, t) for t in self._names}
            self._rates[key] = {t: rate for t, rate in rates.items() if rate is not None}
        return {t: _remaining_seconds(job, rate) for t, rate in self._rates[key].items()}

    def _rate(self, job: Job, gpus: int, gpu_type: GpuType) -> float | None:
        """Samples per second; None if the type cannot hold the job."""
        table = job.throughput.get(gpu_type)
        rates = self._rate_sums[gpu_type]
        servers = bisect_left(rates, gpus) + 1
        if table is None or gpus > rates[-1] or (servers > 1 and not table.distributed):
            return None
        if not job.rules.enough(gpu_type, gpus):
            return None
        return per_gpu(table, gpus, servers) * self._slowest_factor(job, gpu_type) * gpus

    def _slowest_factor(self, job: Job, gpu_type: GpuType) -> float:
        key = (id(job.server_factor), gpu_type)
        if key not in self._slowest:
            names = self._names[gpu_type]
            self._slowest[key] = min(job.server_factor.get(name, 1.0) for name in names)
        return self._slowest[key]


def _remaining_seconds(job: Job, rate: float) -> float:
    """Remaining run time at ``rate`` samples per second."""
    if job.time_limit_seconds is not None:
        return max(0.0, job.time_limit_seconds - job.run_seconds)
    if job.samples is None or not rate:  # runs on a type whose speed is unknown
        return max(0.0, (job.age_seconds or DEFAULT_AGE_SECONDS) - job.run_seconds)
    return max(0.0, job.samples - job.samples_done) / rate


plan = Backfill()
plan_multifactor = Backfill(multifactor=True)
