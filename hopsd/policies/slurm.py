"""First come, first served with conservative backfill: what plain Slurm does today.

Like ``sched/backfill`` (slurm.conf(5), SchedulerType): every job of the queue, in order of
submission, gets the earliest start that delays no job before it, and those that can start now
do. Jobs are rigid, are never preempted, take one server or, above a server's size, whole
servers, and take whatever GPU type comes first: Slurm knows nothing of their speed. Run times
are taken as known: the time limit where there is one, else what the job really needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hopsd.core.priority import DEFAULT_AGE_SECONDS
from hopsd.core.throughput import configuration_throughput
from hopsd.model.allocation import Allocation
from hopsd.model.ids import GpuType, JobId, job_order
from hopsd.model.job import Job
from hopsd.model.plan import Plan, PlanSettings, Snapshot
from hopsd.model.reason import Reason, ReasonCode
from hopsd.policies.placing import Sites, contenders

TESTED_JOBS_MAX = 500
"""Jobs of the queue that are looked at, as bf_max_job_test of slurm.conf(5)."""


def plan(snapshot: Snapshot, settings: PlanSettings) -> Plan:  # noqa: ARG001
    """Start what can start now without delaying anybody before it in the queue."""
    jobs = contenders(snapshot)
    sites = Sites(snapshot)
    placements = {job.id: job.running for job in jobs if job.running}
    for allocation in placements.values():
        sites.take(allocation)
    queue = sorted((j for j in jobs if not j.running), key=lambda j: (j.submit, job_order(j.id)))
    waiting: dict[JobId, Reason] = {}
    profile = _Profile(snapshot, sites)
    needs = [sites.rigid(job) for job in queue]
    for i, job in enumerate(queue[:TESTED_JOBS_MAX]):
        gpus = needs[i]
        if gpus is None:
            text = "no server or group of servers of a type that it knows is large enough"
            waiting[job.id] = Reason(ReasonCode.NO_CONFIGURATION, text)
            continue
        if profile.full(min(g for g in needs[i:] if g is not None)):
            break
        found = profile.earliest(job, gpus)
        if found is None:
            continue
        profile.reserve(found)
        if found.start == 0:
            placements[job.id] = found.allocation
    for job in queue:
        if job.id not in placements and job.id not in waiting:
            text = "its turn comes when GPUs that jobs before it wait for are free"
            waiting[job.id] = Reason(ReasonCode.LOST_TO_OTHERS, text)
    left = int(profile.free[0].sum())
    return Plan(
        placements=placements,
        window=tuple(job.id for job in queue),
        fragments=left if len(placements) < len(jobs) else 0,
        waiting=waiting,
    )


@dataclass(frozen=True, slots=True)
class _Slot:
    """``start``: index of the profile's row; ``end`` in seconds."""

    start: int
    end: float
    allocation: Allocation
    nodes: tuple[tuple[int, int], ...]


class _Profile:
    """Free GPUs of every server over time: row b holds from ``times[b]`` on."""

    def __init__(self, snapshot: Snapshot, sites: Sites) -> None:
        self._nodes = snapshot.nodes
        self._types = {node.name: node.gpu_type for node in snapshot.nodes}
        self._index = {node.name: i for i, node in enumerate(snapshot.nodes)}
        self._members: dict[GpuType, list[int]] = {}
        for i, node in enumerate(snapshot.nodes):
            self._members.setdefault(node.gpu_type, []).append(i)
        self._size = {t: max(self._nodes[i].gpus for i in m) for t, m in self._members.items()}
        self.times = np.array([snapshot.now])
        self.free = np.array([[sites.idle[n.name] for n in snapshot.nodes]], dtype=np.int32)
        for job in snapshot.jobs:
            if job.running:
                row = self._row(snapshot.now + self._seconds(job, job.running))
                for name, gpus in job.running:
                    if name in self._index:
                        self.free[row:, self._index[name]] += gpus

    def full(self, gpus: int) -> bool:
        """Whether nothing that needs at least ``gpus`` GPUs can start now."""
        now = self.free[0]
        return int(now.max()) < min(gpus, *self._size.values())

    def earliest(self, job: Job, gpus: int) -> _Slot | None:
        """The first row from which on the job fits for as long as it runs; None: nobody knows,
        others than the known jobs hold GPUs that it needs.
        """
        together = [
            (t, members)
            for t, members in self._members.items()
            if t in job.throughput and gpus <= self._size[t]
        ]
        slots = [self._on_one(job, gpus, together)] if together else []
        for gpu_type, members in self._members.items():
            table = job.throughput.get(gpu_type)
            if table is not None and table.distributed and gpus > self._size[gpu_type]:
                slots.append(self._on_many(job, gpus, self._size[gpu_type], members))
        found = [slot for slot in slots if slot is not None]
        return min(found, key=lambda slot: slot.start, default=None)

    def reserve(self, slot: _Slot) -> None:
        start = float(self.times[slot.start])
        end = self._row(slot.end)
        first = self._row(start)
        for node, gpus in slot.nodes:
            self.free[first:end, node] -= gpus

    def _row(self, time: float) -> int:
        """The row that begins at ``time``, made where there is none."""
        row = int(np.searchsorted(self.times, time))
        if row == len(self.times) or self.times[row] != time:
            self.times = np.insert(self.times, row, time)
            self.free = np.insert(self.free, row, self.free[row - 1], axis=0)
        return row

    def _seconds(self, job: Job, allocation: Allocation) -> float:
        """What is left of the run time on ``allocation``."""
        if job.time_limit_seconds is not None:
            return max(0.0, job.time_limit_seconds - job.run_seconds)
        if job.samples is None:
            return max(0.0, (job.age_seconds or DEFAULT_AGE_SECONDS) - job.run_seconds)
        rate = configuration_throughput(job, allocation, self._types)
        return max(0.0, job.samples - job.samples_done) / rate

    def _lasting(
        self, gpus: int, groups: Sequence[tuple[Sequence[int], float]]
    ) -> npt.NDArray[np.bool_]:
        """Whether a server holds ``gpus`` free from row b on for its group's seconds: (rows, m)."""
        count = len(self.times)
        members = [i for group, _ in groups for i in group]
        fits = self.free[:, members] >= gpus
        rows = np.arange(count, dtype=np.int32)
        stops = np.where(fits, np.int32(count), rows[:, None])
        stops = np.minimum.accumulate(stops[::-1], axis=0)[::-1]
        lasting: npt.NDArray[np.bool_] = np.empty_like(fits)
        first = 0
        for group, seconds in groups:
            end = np.searchsorted(self.times, self.times + seconds)[:, None]
            part = slice(first, first + len(group))
            lasting[:, part] = fits[:, part] & (stops[:, part] >= end)
            first = part.stop
        return lasting

    def _on_one(
        self, job: Job, gpus: int, types: Sequence[tuple[GpuType, list[int]]]
    ) -> _Slot | None:
        """On one server; of those that have room first the fullest."""
        groups = [(group, self._longest(job, gpus, group)) for _, group in types]
        ok = self._lasting(gpus, groups)
        row = _first(np.asarray(ok.any(axis=1)))
        if row is None:
            return None
        members = [i for group, _ in groups for i in group]
        slack = np.where(ok[row], self.free[row, members], np.iinfo(np.int32).max)
        node = members[int(slack.argmin())]
        seconds = next(seconds for group, seconds in groups if node in group)
        end = float(self.times[row]) + seconds
        return _Slot(row, end, self._part(node, gpus), ((node, gpus),))

    def _longest(self, job: Job, gpus: int, group: Sequence[int]) -> float:
        """Run time on the slowest server of a type: a safe guess, as time limits are."""
        names = [self._nodes[i].name for i in group]
        factor = job.server_factor
        slowest = min(names, key=lambda name: factor.get(name, 1.0)) if factor else names[0]
        return self._seconds(job, Allocation(((slowest, gpus),)))

    def _part(self, node: int, gpus: int) -> Allocation:
        return Allocation(((self._nodes[node].name, gpus),))

    def _on_many(self, job: Job, gpus: int, largest: int, members: Sequence[int]) -> _Slot | None:
        """Whole servers of the largest size, and one for what remains."""
        whole, rest = divmod(gpus, largest)
        big = [m for m in members if self._nodes[m].gpus == largest]
        if len(big) < whole + (rest > 0):
            return None
        shape = {self._nodes[m].name: largest for m in big[:whole]}
        if rest:
            shape[self._nodes[big[whole]].name] = rest
        seconds = self._seconds(job, Allocation.of(shape))
        full = self._lasting(largest, [(big, seconds)])
        part = self._lasting(rest, [(big, seconds)]) if rest else full
        row = _first((full.sum(axis=1) >= whole) & (part.sum(axis=1) >= whole + (rest > 0)))
        if row is None:
            return None
        chosen = [m for m, ok in zip(big, full[row], strict=True) if ok][:whole]
        nodes = [(m, largest) for m in chosen]
        if rest:
            others = [m for m, ok in zip(big, part[row], strict=True) if ok and m not in chosen]
            nodes.append((min(others, key=lambda m: (self.free[row, m], m)), rest))
        allocation = Allocation.of({self._nodes[m].name: g for m, g in nodes})
        return _Slot(row, float(self.times[row]) + seconds, allocation, tuple(nodes))


def _first(rows: npt.NDArray[np.bool_]) -> int | None:
    """The first row that is true."""
    return int(rows.argmax()) if rows.any() else None
