"""First come, first served with conservative backfill: what plain Slurm does today.

Like ``sched/backfill`` (slurm.conf(5), SchedulerType): every job of the queue, in order of
submission, gets the earliest start that delays no job before it, and those that can start now
do. Jobs are rigid, are never preempted, take one server or, above a server's size, whole
servers, and take whatever GPU type comes first: Slurm knows nothing of their speed. Run times
are taken as known: the time limit where there is one, else what the job really needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import le
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from hopsd.core.priority import DEFAULT_AGE_SECONDS
from hopsd.core.shapes import Bools, Floats, Ints
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
    steady: ClassVar[bool] = True

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


@dataclass(frozen=True, slots=True)
class _Slot:
    """``start``: index of the profile's row; ``end`` in seconds."""

    start: int
    end: float
    allocation: Allocation


@dataclass(frozen=True, slots=True)
class _Sites:
    """Servers of several types: the ``type`` of each of the ``members`` (servers,) counts from 0;
    ``one_hot`` (servers, types) is 1 at its type.
    """

    members: Ints
    type: Ints
    one_hot: npt.NDArray[np.float32]

    def count(self, servers: Bools) -> npt.NDArray[np.float32]:
        """How many of each type's servers are true: (rows, types) of (rows, servers)."""
        return servers @ self.one_hot


class _Profile:
    """Free GPUs of every server over time: row b holds from ``times[b]`` on."""

    def __init__(self, snapshot: Snapshot, sites: Sites) -> None:
        self._nodes = snapshot.nodes
        self._types = {node.name: node.gpu_type for node in snapshot.nodes}
        members: dict[GpuType, list[int]] = {}
        for i, node in enumerate(snapshot.nodes):
            members.setdefault(node.gpu_type, []).append(i)
        self._members = {t: np.array(own) for t, own in members.items()}
        sizes = np.array([node.gpus for node in snapshot.nodes])
        self._size = {t: int(sizes[own].max()) for t, own in self._members.items()}
        self._largest = {t: own[sizes[own] == self._size[t]] for t, own in self._members.items()}
        self._placed: list[tuple[int, tuple[float, ...], float]] = []
        self._sorted: dict[tuple[int, GpuType], list[NodeName]] = {}
        self._rates: dict[tuple[int, int, int], dict[GpuType, float]] = {}
        self._lengths: dict[JobId, dict[GpuType, float]] = {}
        self._sites_of: dict[tuple[tuple[GpuType, ...], bool], _Sites] = {}
        self._index = {node.name: i for i, node in enumerate(snapshot.nodes)}
        ends, gained = [snapshot.now], [(0, 0)]
        for job in snapshot.jobs:
            if job.running:
                rate = configuration_throughput(job, job.running, self._types)
                end = snapshot.now + self._seconds(job, rate)
                own = [(self._index[n], gpus) for n, gpus in job.running if n in self._index]
                ends += [end] * len(own)
                gained += own
        self.times, rows = np.unique(np.array(ends), return_inverse=True)
        self.free = np.zeros((len(self.times), len(snapshot.nodes)), dtype=np.int32)
        self.free[0] = [sites.idle[n.name] for n in snapshot.nodes]
        nodes, gpus_gained = np.array(gained).T
        np.add.at(self.free, (rows, nodes), gpus_gained)
        self.free = np.cumsum(self.free, axis=0, dtype=np.int32)
        self._idle: dict[GpuType, list[int]] = {}
        self._able: dict[int, list[GpuType]] = {}
        self._look()

    def could_start(self, job: Job, gpus: int) -> bool:
        """Whether the job could start now if it were next."""
        able = self._able_now(gpus)
        if not able:
            return False
        seconds = self._seconds_by_type(job, gpus)
        for gpu_type in able:
            if gpu_type in seconds:
                end = self.times[0] + seconds[gpu_type]
                until = max(1, int(self.times.searchsorted(end)))
                lasting = self.free[:until, self._members[gpu_type]].min(axis=0)
                if self._holds(gpus, gpu_type, lasting.tolist()):
                    return True
        return False

    def _able_now(self, gpus: int) -> list[GpuType]:
        """The types whose servers hold ``gpus`` of one job beside what runs now."""
        if gpus not in self._able:
            self._able[gpus] = [t for t, idle in self._idle.items() if self._holds(gpus, t, idle)]
        return self._able[gpus]

    def _holds(self, gpus: int, gpu_type: GpuType, idle: Sequence[int]) -> bool:
        """Whether servers with ``idle`` GPUs hold the job, whole ones where it needs several."""
        largest = self._size[gpu_type]
        if gpus <= largest:
            return max(idle) >= gpus
        return sum(1 for i in idle if i >= largest) >= gpus // largest

    def _look(self) -> None:
        """Note what is idle now."""
        now = self.free[0]
        self._idle = {t: now[members].tolist() for t, members in self._members.items()}
        self._able = {}

    def earliest(self, job: Job, gpus: int) -> _Slot | None:
        """The first row from which on the job fits for as long as it runs; None: nobody knows,
        others than the known jobs hold GPUs that it needs.
        """
        seconds = self._seconds_by_type(job, gpus)
        needs = tuple(seconds.get(t, np.inf) for t in self._members)
        first, before = self._not_before(gpus, needs), len(self.times)
        one = {t: s for t, s in seconds.items() if gpus <= self._size[t]}
        many = {t: s for t, s in seconds.items() if gpus > self._size[t]}
        found = _soonest(self._on_one, gpus, one, first, before) if one else None
        before = before if found is None else found.start
        if many and before > first:
            found = _soonest(self._on_many, gpus, many, first, before) or found
        start = np.inf if found is None else float(self.times[found.start])
        self._placed.append((gpus, needs, start))
        return found

    def _seconds_by_type(self, job: Job, gpus: int) -> dict[GpuType, float]:
        """Run time on each type that can hold the job."""
        if job.id not in self._lengths:
            rates = self._rates_by_type(job, gpus)
            self._lengths[job.id] = {t: self._seconds(job, rate) for t, rate in rates.items()}
        return self._lengths[job.id]

    def _not_before(self, gpus: int, needs: tuple[float, ...]) -> int:
        """A row before which the job cannot start: one before it in the queue, with no more GPUs
        and on no type longer, could not either, and since then nothing got free.
        """
        starts = [start for g, n, start in self._placed if g <= gpus and all(map(le, n, needs))]
        return int(self.times.searchsorted(max(starts, default=float(self.times[0]))))

    def _rates_by_type(self, job: Job, gpus: int) -> dict[GpuType, float]:
        """Samples per second on the slowest servers of each type that can hold the job.

        A safe guess, as time limits are.
        """
        key = (id(job.throughput), id(job.server_factor), gpus)
        if key not in self._rates:
            shapes = {t: self._slowest(job, gpus, t) for t in self._members}
            self._rates[key] = {
                t: configuration_throughput(job, shape, self._types)
                for t, shape in shapes.items()
                if shape is not None
            }
        return self._rates[key]

    def _slowest(self, job: Job, gpus: int, gpu_type: GpuType) -> Allocation | None:
        """``gpus`` on the job's slowest servers of a type; None where that cannot hold it."""
        table = job.throughput.get(gpu_type)
        members, largest = self._members[gpu_type], self._size[gpu_type]
        if table is None or (gpus > largest and not table.distributed):
            return None
        slowest = self._by_speed(job, gpu_type)
        if gpus <= largest:
            return Allocation(((slowest[0], gpus),))
        whole, rest = divmod(gpus, largest)
        if len(members) < whole + (rest > 0):
            return None
        shape = dict.fromkeys(slowest[:whole], largest)
        if rest:
            shape[slowest[whole]] = rest
        return Allocation.of(shape)

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
        for name, gpus in slot.allocation:
            self.free[first:end, self._index[name]] -= gpus
        if first == 0:
            self._look()

    def _row(self, time: float) -> int:
        """The row that begins at ``time``, made where there is none."""
        row = int(self.times.searchsorted(time))
        if row == len(self.times) or self.times[row] != time:
            self.times = np.concatenate((self.times[:row], [time], self.times[row:]))
            self.free = np.concatenate((self.free[:row], self.free[row - 1 :]))
        return row

    def _seconds(self, job: Job, rate: float) -> float:
        """What is left of the run time at ``rate`` samples per second."""
        if job.time_limit_seconds is not None:
            return max(0.0, job.time_limit_seconds - job.run_seconds)
        if job.samples is None or not rate:  # it runs where no table of its workload says how fast
            return max(0.0, (job.age_seconds or DEFAULT_AGE_SECONDS) - job.run_seconds)
        return max(0.0, job.samples - job.samples_done) / rate

    def _lasting(
        self, gpus: Ints, sites: _Sites, seconds: Floats, first: int, before: int | None = None
    ) -> Bools:
        """Whether a server holds ``gpus`` for its type's seconds, both (types,).

        (rows ``first:before``, servers of ``sites``).
        """
        starts = self.times[first:before]
        ends = self.times.searchsorted(starts[:, None] + seconds) - first
        length = max(int(ends[-1].max()), len(starts))
        fits = self.free[first : first + length, sites.members] >= gpus[sites.type]
        stops = np.where(fits, np.int32(length), np.arange(length, dtype=np.int32)[:, None])
        np.minimum.accumulate(stops[::-1], axis=0, out=stops[::-1])
        lasting: Bools = stops[: len(starts)] >= ends[:, sites.type]
        lasting &= fits[: len(starts)]
        return lasting

    def _on_one(
        self, gpus: int, seconds: Mapping[GpuType, float], first: int, before: int
    ) -> _Slot | None:
        """On one server; of those that have room first the fullest."""
        sites = self._sites(tuple(seconds))
        needs = np.full(len(seconds), gpus)
        ok = self._lasting(needs, sites, np.array(list(seconds.values())), first, before)
        row = _first(ok)
        if row is None:
            return None
        at = first + row
        slack = np.where(ok[row], self.free[at, sites.members], np.iinfo(np.int32).max)
        node = self._nodes[sites.members[slack.argmin()]]
        return self._slot(at, seconds[node.gpu_type], {node.name: gpus})

    def _on_many(
        self, gpus: int, seconds: Mapping[GpuType, float], first: int, before: int
    ) -> _Slot | None:
        """Whole servers of a type's largest size, and one for what remains."""
        sites = self._sites(tuple(seconds), largest=True)
        times = np.array(list(seconds.values()))
        largest = np.array([self._size[t] for t in seconds])
        whole, rest = np.divmod(gpus, largest)
        part = full = self._lasting(largest, sites, times, first, before)
        enough = sites.count(full) >= whole
        if rest.any() and _first(enough) is not None:
            part = self._lasting(rest, sites, times, first, before)
            enough &= sites.count(part) >= whole + (rest > 0)
        row = _first(enough)
        if row is None:
            return None
        at, chosen = first + row, int(enough[row].argmax())
        own = sites.type == chosen
        taken = sites.members[own & full[row]][: whole[chosen]].tolist()
        nodes = {self._nodes[m].name: int(largest[chosen]) for m in taken}
        if rest[chosen]:
            others = [m for m in sites.members[own & part[row]].tolist() if m not in taken]
            last = min(others, key=lambda m: (self.free[at, m], m))
            nodes[self._nodes[last].name] = int(rest[chosen])
        return self._slot(at, list(seconds.values())[chosen], nodes)

    def _slot(self, at: int, seconds: float, gpus: Mapping[NodeName, int]) -> _Slot:
        return _Slot(at, float(self.times[at]) + seconds, Allocation.of(gpus))

    def _sites(self, types: tuple[GpuType, ...], *, largest: bool = False) -> _Sites:
        """The servers of ``types``, only those of each type's largest size with ``largest``."""
        key = types, largest
        if key not in self._sites_of:
            groups = [(self._largest if largest else self._members)[t] for t in types]
            own = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
            one_hot = np.eye(len(groups), dtype=np.float32)[own]
            self._sites_of[key] = _Sites(np.concatenate(groups), own, one_hot)
        return self._sites_of[key]


def _soonest(
    look: Callable[[int, Mapping[GpuType, float], int, int], _Slot | None],
    gpus: int,
    seconds: Mapping[GpuType, float],
    first: int,
    before: int,
) -> _Slot | None:
    """``look`` at the rows, a few at a time: most jobs find their place among the first."""
    rows = 16
    while first < before:
        if found := look(gpus, seconds, first, min(first + rows, before)):
            return found
        first, rows = first + rows, 4 * rows
    return None


def _first(rows: Bools) -> int | None:
    """The first row of which something is true."""
    at = int(rows.argmax())
    return at // rows.shape[1] if rows.flat[at] else None


plan = Backfill()
