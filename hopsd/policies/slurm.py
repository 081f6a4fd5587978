"""First come, first served with conservative backfill: what plain Slurm does today.

Like ``sched/backfill`` (slurm.conf(5), SchedulerType): every job of the queue, in order of
submission, gets the earliest start that delays no job before it, and those that can start now
do. Jobs are rigid, are never preempted, take one server or, above a server's size, whole
servers, and take whatever GPU type comes first: Slurm knows nothing of their speed. Run times
are taken as known: the time limit where there is one, else what the job really needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from hopsd.core.priority import DEFAULT_AGE_SECONDS
from hopsd.core.throughput import configuration_throughput
from hopsd.model.allocation import Allocation
from hopsd.model.ids import GpuType, JobId, NodeName, job_order
from hopsd.model.job import Job
from hopsd.model.plan import Plan, PlanSettings, Snapshot
from hopsd.model.reason import Reason, ReasonCode
from hopsd.policies.placing import Sites, contenders

TESTED_JOBS_MAX = 500
"""Jobs of the queue that are looked at, as bf_max_job_test of slurm.conf(5)."""


@dataclass(frozen=True, slots=True)
class Backfill:
    """One pass over the queue whenever something happens, as Slurm makes it."""

    settles: ClassVar[bool] = True

    def __call__(self, snapshot: Snapshot, settings: PlanSettings) -> Plan:  # noqa: ARG002
        """Start what can start now without delaying anybody before it in the queue."""
        jobs = contenders(snapshot)
        sites = Sites(snapshot)
        placements = {job.id: job.running for job in jobs if job.running}
        for allocation in placements.values():
            sites.take(allocation)
        queue = sorted(
            (j for j in jobs if not j.running), key=lambda j: (j.submit, job_order(j.id))
        )
        needs = {job.id: sites.rigid(job) for job in queue}
        profile = _Profile(snapshot, sites)
        placements |= _starting(profile, queue[:TESTED_JOBS_MAX], needs)
        waiting = {
            job.id: _NOWHERE if needs[job.id] is None else _LATER
            for job in queue
            if job.id not in placements
        }
        left = int(profile.free[0].sum())
        return Plan(
            placements=placements,
            window=tuple(job.id for job in queue),
            fragments=left if len(placements) < len(jobs) else 0,
            waiting=waiting,
        )


_NOWHERE = Reason(
    ReasonCode.NO_CONFIGURATION,
    "no server or group of servers of a type that it knows is large enough",
)
_LATER = Reason(
    ReasonCode.LOST_TO_OTHERS, "its turn comes when GPUs that jobs before it wait for are free"
)


def _starting(
    profile: _Profile, queue: Sequence[Job], needs: Mapping[JobId, int | None]
) -> dict[JobId, Allocation]:
    """Who starts now, and where, when every job in turn gets its earliest place.

    Places only get fewer: who could not start now if it were next will not start in its turn, and
    behind the last who could, nobody's place matters.
    """
    tasks = [(job, gpus) for job in queue if (gpus := needs[job.id]) is not None]
    hopeful = list(range(len(tasks)))
    started = {}
    for i, (job, gpus) in enumerate(tasks):
        while hopeful and not profile.could_start(*tasks[hopeful[-1]]):
            hopeful.pop()
        if not hopeful or hopeful[-1] < i:
            break
        found = profile.earliest(job, gpus)
        if found is not None:
            profile.reserve(found)
            if found.start == 0:
                started[job.id] = found.allocation
    return started


Floats = npt.NDArray[np.float64]


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
        self._members: dict[GpuType, list[int]] = {}
        for i, node in enumerate(snapshot.nodes):
            self._members.setdefault(node.gpu_type, []).append(i)
        self._size = {t: max(self._nodes[i].gpus for i in m) for t, m in self._members.items()}
        self._placed: list[tuple[int, Floats, float]] = []
        self._sorted: dict[tuple[int, GpuType], list[NodeName]] = {}
        self._lengths: dict[JobId, dict[GpuType, float]] = {}
        index = {node.name: i for i, node in enumerate(snapshot.nodes)}
        ends, gained = [snapshot.now], [(0, 0)]
        for job in snapshot.jobs:
            if job.running:
                end = snapshot.now + self._seconds(job, job.running)
                own = [(index[name], gpus) for name, gpus in job.running if name in index]
                ends += [end] * len(own)
                gained += own
        self.times, rows = np.unique(np.array(ends), return_inverse=True)
        self.free = np.zeros((len(self.times), len(snapshot.nodes)), dtype=np.int32)
        self.free[0] = [sites.idle[n.name] for n in snapshot.nodes]
        nodes, gpus_gained = np.array(gained).T
        np.add.at(self.free, (rows, nodes), gpus_gained)
        self.free = np.cumsum(self.free, axis=0, dtype=np.int32)
        self._idle: dict[GpuType, list[int]] = {}
        self._look()

    def could_start(self, job: Job, gpus: int) -> bool:
        """Whether the job could start now if it were next."""
        if not any(self._holds(gpus, t, self._idle[t]) for t in self._members):
            return False
        for gpu_type, seconds in self._seconds_by_type(job, gpus).items():
            if self._holds(gpus, gpu_type, self._idle[gpu_type]):
                until = max(1, int(np.searchsorted(self.times, self.times[0] + seconds)))
                lasting = self.free[:until, self._members[gpu_type]].min(axis=0)
                if self._holds(gpus, gpu_type, lasting.tolist()):
                    return True
        return False

    def _holds(self, gpus: int, gpu_type: GpuType, idle: Sequence[int]) -> bool:
        """Whether servers with ``idle`` GPUs hold the job, whole ones where it needs several."""
        largest = self._size[gpu_type]
        if gpus <= largest:
            return max(idle) >= gpus
        return sum(1 for i in idle if i >= largest) >= gpus // largest

    def _look(self) -> None:
        """Note what is idle now."""
        now = self.free[0].tolist()
        self._idle = {t: [now[i] for i in members] for t, members in self._members.items()}

    def earliest(self, job: Job, gpus: int) -> _Slot | None:
        """The first row from which on the job fits for as long as it runs; None: nobody knows,
        others than the known jobs hold GPUs that it needs.
        """
        seconds = self._seconds_by_type(job, gpus)
        needs = np.array([seconds.get(t, np.inf) for t in self._members])
        first, before = self._not_before(gpus, needs), len(self.times)
        one = [(t, s) for t, s in seconds.items() if gpus <= self._size[t]]
        found = self._on_one(gpus, one, first) if one else None
        for gpu_type, duration in seconds.items():
            before = before if found is None else found.start
            if before > first and gpus > self._size[gpu_type]:
                found = self._on_many(gpus, gpu_type, duration, first, before) or found
        start = np.inf if found is None else float(self.times[found.start])
        self._placed.append((gpus, needs, start))
        return found

    def _seconds_by_type(self, job: Job, gpus: int) -> dict[GpuType, float]:
        """Run time on each type that can hold the job."""
        if job.id not in self._lengths:
            longest = {t: self._longest(job, gpus, t) for t in self._members}
            self._lengths[job.id] = {t: s for t, s in longest.items() if s is not None}
        return self._lengths[job.id]

    def _not_before(self, gpus: int, needs: Floats) -> int:
        """A row before which the job cannot start: one before it in the queue, with no more GPUs
        and on no type longer, could not either, and since then nothing got free.
        """
        starts = [start for g, n, start in self._placed if g <= gpus and bool((n <= needs).all())]
        return int(np.searchsorted(self.times, max(starts, default=float(self.times[0]))))

    def _longest(self, job: Job, gpus: int, gpu_type: GpuType) -> float | None:
        """Run time on the slowest server of a type: a safe guess, as time limits are.

        None: the type cannot hold it.
        """
        table = job.throughput.get(gpu_type)
        members, largest = self._members[gpu_type], self._size[gpu_type]
        if table is None or (gpus > largest and not table.distributed):
            return None
        slowest = self._by_speed(job, gpu_type)
        if gpus <= largest:
            return self._seconds(job, Allocation(((slowest[0], gpus),)))
        whole, rest = divmod(gpus, largest)
        if len(members) < whole + (rest > 0):
            return None
        shape = dict.fromkeys(slowest[:whole], largest)
        if rest:
            shape[slowest[whole]] = rest
        return self._seconds(job, Allocation.of(shape))

    def _by_speed(self, job: Job, gpu_type: GpuType) -> list[NodeName]:
        """A type's servers, the slowest first for this job's workload."""
        key = (id(job.server_factor), gpu_type)
        if key not in self._sorted:
            names = [self._nodes[i].name for i in self._members[gpu_type]]
            factor = job.server_factor
            self._sorted[key] = sorted(names, key=lambda name: factor.get(name, 1.0))
        return self._sorted[key]

    def reserve(self, slot: _Slot) -> None:
        start = float(self.times[slot.start])
        end = self._row(slot.end)
        first = self._row(start)
        for node, gpus in slot.nodes:
            self.free[first:end, node] -= gpus
        if first == 0:
            self._look()

    def _row(self, time: float) -> int:
        """The row that begins at ``time``, made where there is none."""
        row = int(np.searchsorted(self.times, time))
        if row == len(self.times) or self.times[row] != time:
            self.times = np.concatenate((self.times[:row], [time], self.times[row:]))
            self.free = np.concatenate((self.free[:row], self.free[row - 1 :]))
        return row

    def _seconds(self, job: Job, allocation: Allocation) -> float:
        """What is left of the run time on ``allocation``."""
        if job.time_limit_seconds is not None:
            return max(0.0, job.time_limit_seconds - job.run_seconds)
        rate = configuration_throughput(job, allocation, self._types)
        if job.samples is None or not rate:  # it runs where no table of its workload says how fast
            return max(0.0, (job.age_seconds or DEFAULT_AGE_SECONDS) - job.run_seconds)
        return max(0.0, job.samples - job.samples_done) / rate

    def _lasting(
        self,
        gpus: int,
        groups: Sequence[tuple[Sequence[int], float]],
        first: int,
        before: int | None = None,
    ) -> npt.NDArray[np.bool_]:
        """Whether a server holds ``gpus`` for its group's seconds: (rows ``first:before``, m)."""
        starts = self.times[first:before]
        last = int(np.searchsorted(self.times, starts[-1] + max(s for _, s in groups)))
        members = [i for group, _ in groups for i in group]
        fits = self.free[first : max(last, first + len(starts)), members] >= gpus
        rows = np.arange(len(fits), dtype=np.int32)
        stops = np.where(fits, np.int32(len(fits)), rows[:, None])
        stops = np.minimum.accumulate(stops[::-1], axis=0)[::-1][: len(starts)]
        ends = [np.searchsorted(self.times, starts + seconds) - first for _, seconds in groups]
        sizes = [len(group) for group, _ in groups]
        lasting: npt.NDArray[np.bool_] = fits[: len(starts)] & (
            stops >= np.repeat(np.column_stack(ends), sizes, axis=1)
        )
        return lasting

    def _on_one(
        self, gpus: int, types: Sequence[tuple[GpuType, float]], first: int
    ) -> _Slot | None:
        """On one server; of those that have room first the fullest."""
        groups = [(self._members[t], seconds) for t, seconds in types]
        ok = self._lasting(gpus, groups, first)
        row = _first(np.asarray(ok.any(axis=1)))
        if row is None:
            return None
        at = first + row
        members = [i for group, _ in groups for i in group]
        slack = np.where(ok[row], self.free[at, members], np.iinfo(np.int32).max)
        node = members[int(slack.argmin())]
        seconds = next(seconds for group, seconds in groups if node in group)
        where = Allocation(((self._nodes[node].name, gpus),))
        return _Slot(at, float(self.times[at]) + seconds, where, ((node, gpus),))

    def _on_many(
        self, gpus: int, gpu_type: GpuType, seconds: float, first: int, before: int
    ) -> _Slot | None:
        """Whole servers of the type's largest size, and one for what remains."""
        largest = self._size[gpu_type]
        whole, rest = divmod(gpus, largest)
        big = [m for m in self._members[gpu_type] if self._nodes[m].gpus == largest]
        full = self._lasting(largest, [(big, seconds)], first, before)
        if not full.any():
            return None
        part = self._lasting(rest, [(big, seconds)], first, before) if rest else full
        row = _first((full.sum(axis=1) >= whole) & (part.sum(axis=1) >= whole + (rest > 0)))
        if row is None:
            return None
        at = first + row
        chosen = [m for m, ok in zip(big, full[row], strict=True) if ok][:whole]
        nodes = [(m, largest) for m in chosen]
        if rest:
            others = [m for m, ok in zip(big, part[row], strict=True) if ok and m not in chosen]
            nodes.append((min(others, key=lambda m: (self.free[at, m], m)), rest))
        allocation = Allocation.of({self._nodes[m].name: g for m, g in nodes})
        return _Slot(at, float(self.times[at]) + seconds, allocation, tuple(nodes))


def _first(rows: npt.NDArray[np.bool_]) -> int | None:
    """The first row that is true."""
    return int(rows.argmax()) if rows.any() else None


plan = Backfill()
