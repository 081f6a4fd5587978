"""First come, first served with conservative backfill: what plain Slurm does today.

Like ``sched/backfill`` (slurm.conf(5), SchedulerType): every job of the queue, in order of
submission, gets the earliest start that delays no job before it, and those that can start now
do. Jobs are rigid, are never preempted, take one server or, above a server's size, whole
servers, and take whatever GPU type comes first: Slurm knows nothing of their speed. Run times
are taken as known: the time limit where there is one, else what the job really needs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hopsd.core.throughput import interpolate
from hopsd.model.allocation import Allocation
from hopsd.model.cluster import Node
from hopsd.model.ids import JobId, NodeName, job_order
from hopsd.model.job import Job
from hopsd.model.plan import Plan, PlanSettings, Snapshot
from hopsd.model.reason import Reason, ReasonCode
from hopsd.policies.placing import Sites, contenders

TESTED_JOBS_MAX = 500
"""Jobs of the queue that are looked at, as bf_max_job_test of slurm.conf(5)."""

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


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
        self._index = {node.name: i for i, node in enumerate(snapshot.nodes)}
        self._groups: dict[str, Ints] = {}
        for gpu_type in dict.fromkeys(node.gpu_type for node in snapshot.nodes):
            members = [i for i, n in enumerate(snapshot.nodes) if n.gpu_type == gpu_type]
            self._groups[gpu_type] = np.array(members)
        self.times = np.array([snapshot.now])
        self.free = np.array([[sites.idle[node.name] for node in snapshot.nodes]])
        for job in snapshot.jobs:
            if job.running:
                self._release(job, snapshot.now)

    def full(self, gpus: int) -> bool:
        """Whether nothing that needs at least ``gpus`` GPUs can start now."""
        now = self.free[0]
        return int(now.max()) < gpus and int(now.sum()) < max(gpus, self._smallest_server())

    def _smallest_server(self) -> int:
        return min(node.gpus for node in self._nodes)

    def _release(self, job: Job, now: float) -> None:
        """A running job's GPUs come back at its end."""
        row = self._row(now + self._remaining(job, job.running))
        for name, gpus in job.running:
            if name in self._index:
                self.free[row:, self._index[name]] += gpus

    def _remaining(self, job: Job, allocation: Allocation) -> float:
        if job.time_limit_seconds is not None:
            return max(0.0, job.time_limit_seconds - job.run_seconds)
        if job.samples is None:
            return max(0.0, (job.age_seconds or 0.0) - job.run_seconds)
        return max(0.0, job.samples - job.samples_done) / self._rate(job, allocation)

    def _rate(self, job: Job, allocation: Allocation) -> float:
        nodes: list[tuple[Node, NodeName]] = [
            (self._nodes[self._index[name]], name) for name in allocation.nodes
        ]
        rates = []
        for node, name in nodes:
            table = job.throughput[node.gpu_type]
            per_gpu = (
                interpolate(table.distributed, len(nodes))
                if allocation.spread
                else interpolate(table.aggregated, allocation.gpus)
            )
            rates.append(per_gpu * job.server_factor.get(name, 1.0))
        return min(rates) * allocation.gpus

    def _row(self, time: float) -> int:
        """The row that begins at ``time``, made where there is none."""
        row = int(np.searchsorted(self.times, time))
        if row == len(self.times) or self.times[row] != time:
            self.times = np.insert(self.times, row, time)
            self.free = np.insert(self.free, row, self.free[row - 1], axis=0)
        return row

    def reserve(self, slot: _Slot) -> None:
        start = float(self.times[slot.start])
        end = self._row(slot.end)
        first = self._row(start)
        for node, gpus in slot.nodes:
            self.free[first:end, node] -= gpus

    def earliest(self, job: Job, gpus: int) -> _Slot:
        """The first row from which on the job fits for as long as it runs."""
        best: _Slot | None = None
        for members in self._groups.values():
            table = job.throughput.get(self._nodes[int(members[0])].gpu_type)
            if table is None:
                continue
            largest = max(self._nodes[int(m)].gpus for m in members)
            if gpus <= largest:
                slot = self._on_one(job, gpus, members)
            elif table.distributed and gpus <= sum(self._nodes[int(m)].gpus for m in members):
                slot = self._on_many(job, gpus, largest, members)
            else:
                continue
            if slot is not None and (best is None or slot.start < best.start):
                best = slot
            if best is not None and best.start == 0:
                break
        if best is None:
            raise AssertionError(f"job {job.id} fits an idle cluster, and never the profile")
        return best

    def _lasting(self, gpus: int, members: Ints, seconds: Floats) -> npt.NDArray[np.bool_]:
        """Whether server m holds ``gpus`` free from row b on for ``seconds[m]``: (rows, m)."""
        fits = self.free[:, members] >= gpus
        stops = np.where(fits, np.inf, self.times[:, None])
        until = np.minimum.accumulate(stops[::-1], axis=0)[::-1]
        lasting: npt.NDArray[np.bool_] = fits & (until >= self.times[:, None] + seconds)
        return lasting

    def _seconds(self, job: Job, allocation: Allocation) -> float:
        return self._remaining(job, allocation)

    def _on_one(self, job: Job, gpus: int, members: Ints) -> _Slot | None:
        names = [self._nodes[int(m)].name for m in members]
        if job.server_factor or not names:
            each = [self._seconds(job, Allocation(((name, gpus),))) for name in names]
        else:
            each = [self._seconds(job, Allocation(((names[0], gpus),)))] * len(names)
        seconds = np.array(each)
        ok = self._lasting(gpus, members, seconds)
        rows = ok.any(axis=1)
        if not rows.any():
            return None
        row = int(rows.argmax())
        slack = np.where(ok[row], self.free[row, members], np.iinfo(np.int64).max)
        chosen = int(slack.argmin())
        allocation = Allocation(((names[chosen], gpus),))
        end = float(self.times[row]) + float(seconds[chosen])
        return _Slot(row, end, allocation, ((int(members[chosen]), gpus),))

    def _on_many(self, job: Job, gpus: int, largest: int, members: Ints) -> _Slot | None:
        """Whole servers of the largest size, and one for what remains."""
        whole, rest = divmod(gpus, largest)
        big = np.array([m for m in members if self._nodes[int(m)].gpus == largest])
        if len(big) < whole + (rest > 0):
            return None
        shape = {self._nodes[int(m)].name: largest for m in big[:whole]}
        if rest:
            shape[self._nodes[int(big[whole])].name] = rest
        seconds = np.full(len(big), self._seconds(job, Allocation.of(shape)))
        full = self._lasting(largest, big, seconds)
        part = self._lasting(rest, big, seconds) if rest else full
        rows = (full.sum(axis=1) >= whole) & (part.sum(axis=1) >= whole + (rest > 0))
        if not rows.any():
            return None
        row = int(rows.argmax())
        chosen = [int(m) for m in big[full[row]][:whole]]
        nodes = [(m, largest) for m in chosen]
        if rest:
            others = [int(m) for m in big[part[row]] if int(m) not in chosen]
            nodes.append((min(others, key=lambda m: (self.free[row, m], m)), rest))
        allocation = Allocation.of({self._nodes[m].name: g for m, g in nodes})
        return _Slot(row, float(self.times[row]) + float(seconds[0]), allocation, tuple(nodes))
