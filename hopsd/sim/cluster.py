"""The virtual cluster behind the port: jobs arrive, train, restart, fail and end."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum

from hopsd.errors import HopsError
from hopsd.model.allocation import Allocation
from hopsd.model.devices import is_cpu
from hopsd.model.ids import AppName, JobId, NodeName, UserName
from hopsd.model.knowledge import ThroughputRecord
from hopsd.model.reading import Hold, JobReading, NodeReading, Reading, SlurmState
from hopsd.model.scenario import Cluster, Workload, WorkloadJob
from hopsd.model.step import OutcomeStatus, Step, StepKind, StepOutcome
from hopsd.sim.information.comment import comment_of
from hopsd.sim.metrics import AllocationChange
from hopsd.sim.speed import AllocationSpeeds
from hopsd.sim.usage import DecayedUsage
from hopsd.slurm.port import InstantPort

ProgressReport = Callable[[float], float]
"""Maps the samples that a job has trained to those that it reports."""


class BrokenPlanError(HopsError):
    """A policy allocated GPUs twice, more than a server has, or a count that the job cannot use."""


@dataclass(frozen=True, slots=True)
class Failure:
    """At time ``at`` the processes of ``job`` die, or ``server`` is lost for ``seconds``.

    Jobs on the server return to the queue. Work since the last checkpoint is lost.
    """

    at: float
    job: JobId | None = None
    server: NodeName | None = None
    seconds: float = 0.0


def _unavailable(failures: Sequence[Failure], now: float) -> set[NodeName | None]:
    return {f.server for f in failures if f.at <= now < f.at + f.seconds}


def lost_gpus(cluster: Cluster, failures: Sequence[Failure], now: float) -> int:
    """Number of GPUs on the servers that are down."""
    down_nodes = _unavailable(failures, now)
    return sum(server.gpus for server in cluster.servers if server.name in down_nodes)


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """Times of the virtual cluster.

    ``restart_seconds``: how long a job holds GPUs without training at every start but its first,
    unless the workload says; ``profiling_seconds``: the same at its first start.
    ``checkpoint_seconds``: the maximum of training that a failure may cost; a preemption costs
    none, since the job is warned. ``leave_seconds``: how long a job that gets a running job's GPUs
    waits until that job has left them.
    """

    restart_seconds: float = 30.0
    checkpoint_seconds: float = 600.0
    profiling_seconds: float = 0.0
    leave_seconds: float = 0.0

    def restart_of(self, job: WorkloadJob) -> float:
        """Restart seconds of the job, by default those of the cluster."""
        return self.restart_seconds if job.restart_seconds is None else job.restart_seconds


class _Kind(IntEnum):
    """The order of events at the same instant."""

    END = 0
    REPAIR = 1
    FAILURE = 2
    ARRIVAL = 3


@dataclass(frozen=True, slots=True)
class _Before:
    """A job's state before the plans made at ``time``, which together count as one change."""

    time: float
    started: bool
    reading: JobReading
    trains_from: float
    remaining: float


@dataclass(slots=True)
class _VirtualJob:
    """``trains_from``: when the restart is over; ``version`` identifies stale end events."""

    spec: WorkloadJob
    remaining: float
    reading: JobReading
    rate: float = 0.0
    trains_from: float = 0.0
    started: bool = False
    version: int = 0
    before: _Before | None = None

    def samples(self, now: float) -> float:
        """Samples trained in the present run until ``now``."""
        return min(self.remaining, self.rate * max(0.0, now - self.trains_from))

    def samples_at(self, now: float) -> float:
        """Samples trained in all of the job's runs until ``now``."""
        return self.spec.samples - self.remaining + self.samples(now)


_Event = tuple[float, int, int, JobId | None, int]


@dataclass(slots=True)
class VirtualCluster(InstantPort):
    """Implements :class:`hopsd.slurm.port.Port`; time only passes in ``advance``.

    ``changes`` is the timeline of the run so far; ``start_times``: when each job first had its
    GPUs. ``progress_reports``: what jobs report instead of the samples that they have trained.
    ``claims``: what comments say instead of the truth, without samples unless ``declares`` is set.
    ``time_limits`` of jobs are not enforced. ``planning_seconds``: how long it took to make the
    plan being applied, if that counts: the jobs that it places train that much later. ``shares``
    of the cluster by user: if there are any, readings include Slurm's fair-share factors.
    """

    cluster: Cluster
    workload: Workload
    settings: ClusterSettings = field(default_factory=ClusterSettings)
    failures: Sequence[Failure] = ()
    claims: Mapping[JobId, WorkloadJob] = field(default_factory=dict)
    progress_reports: Mapping[JobId, ProgressReport] = field(default_factory=dict)
    declares: bool = True
    time_limits: Mapping[JobId, float] = field(default_factory=dict)
    now: float = 0.0
    shares: Mapping[UserName, float] = field(default_factory=dict)
    changes: list[AllocationChange] = field(default_factory=list)
    start_times: dict[JobId, float] = field(default_factory=dict)
    finished: int = 0
    planning_seconds: float = 0.0
    _ended_samples: float = 0.0
    _jobs: dict[JobId, _VirtualJob] = field(default_factory=dict)
    _ended_jobs: list[JobReading] = field(default_factory=list)
    _final: dict[JobId, float] = field(default_factory=dict)
    _events: list[_Event] = field(default_factory=list)
    _nodes: dict[NodeName, NodeReading] = field(default_factory=dict)
    _users: dict[JobId, UserName] = field(default_factory=dict)
    _idle: dict[NodeName, int] = field(default_factory=dict)
    _free: dict[NodeName, int] = field(default_factory=dict)
    """GPUs that were idle before the steps that are being applied."""
    _open_phases: dict[tuple[UserName, AppName | None], list[int]] = field(default_factory=dict)
    _speeds: AllocationSpeeds = field(init=False)
    _usage: DecayedUsage = field(init=False)

    def __post_init__(self) -> None:
        self._speeds = AllocationSpeeds(self.cluster, self.workload)
        self._usage = DecayedUsage(self.shares)
        for server in self.cluster.servers:
            self._nodes[server.name] = NodeReading(
                server.name,
                server.gpu_type,
                server.gpus,
                cores=server.gpus,
                switches=server.switches,
            )
            self._idle[server.name] = server.gpus
        for i, job in enumerate(self.workload.jobs):
            if job.phase:
                self._open_phases.setdefault((job.user, job.app), []).append(job.phase)
            heapq.heappush(self._events, (job.submit, _Kind.ARRIVAL, i, job.id, 0))
        for i, failure in enumerate(self.failures):
            heapq.heappush(self._events, (failure.at, _Kind.FAILURE, i, failure.job, 0))

    @property
    def name(self) -> str:
        return "virtual"

    @property
    def next_event(self) -> float | None:
        """Time of the next event; None if there is none."""
        while self._events and self._stale(self._events[0]):
            heapq.heappop(self._events)
        return self._events[0][0] if self._events else None

    @property
    def news_to_come(self) -> bool:
        """Whether a submission, failure or repair is still to come."""
        return any(kind != _Kind.END for _, kind, *_ in self._events)

    @property
    def gpus(self) -> int:
        """GPUs of usable servers."""
        return sum(node.gpus for node in self._nodes.values() if node.usable)

    @property
    def idle_gpus(self) -> int:
        """GPUs of usable servers that no job holds."""
        return sum(g for n, g in self._idle.items() if self._nodes[n].usable)

    def waiting(self) -> list[WorkloadJob]:
        """Submitted jobs that hold no GPUs and do not depend on others, in order of submission."""
        return [
            job.spec
            for job in self._jobs.values()
            if job.reading.state is SlurmState.PENDING and not job.reading.dependency
        ]

    @property
    def trained_samples(self) -> float:
        """Samples trained by all jobs until now, without those lost by failures."""
        return self._ended_samples + sum(job.samples_at(self.now) for job in self._jobs.values())

    @property
    def unfinished_jobs(self) -> frozenset[JobId]:
        """Jobs that were submitted and have not ended."""
        return frozenset(self._jobs)

    @property
    def unfinished_in_order(self) -> tuple[JobId, ...]:
        """The unfinished jobs in order of submission."""
        return tuple(self._jobs)

    @property
    def present(self) -> int:
        """The number of unfinished jobs."""
        return len(self._jobs)

    def samples_done(self) -> dict[JobId, float]:
        """Samples trained by each running job until now, as its reports would say, and by the jobs
        that ended since the last reading.
        """
        running = {
            job_id: job.samples_at(self.now) for job_id, job in self._jobs.items() if job.rate
        }
        samples = self._final | running
        return samples | {
            job: say(samples[job]) for job, say in self.progress_reports.items() if job in samples
        }

    def reports(self) -> list[ThroughputRecord]:
        """The speed of each job that has trained since its last start, one report per node."""
        return [
            ThroughputRecord(
                self._speeds.safe_name(job.spec.workload),
                self._nodes[node].gpu_type,
                node,
                job.reading.allocation.gpus,
                len(job.reading.allocation.parts),
                job.rate / job.reading.allocation.gpus,
                self.now,
                job.spec.user,
            )
            for job in self._jobs.values()
            if job.rate and self.now > job.trains_from
            for node in job.reading.allocation.nodes
        ]

    def advance(self, until: float) -> bool:
        """Process all events up to and including ``until``; return whether there were any."""
        has_events = False
        while self.next_event is not None and self._events[0][0] <= until:
            time, kind, index, job, _ = heapq.heappop(self._events)
            self.now, has_events = time, True
            if kind == _Kind.END and job is not None:
                self._end(self._jobs[job])
            elif kind == _Kind.ARRIVAL:
                self._arrive(self.workload.jobs[index])
            elif kind == _Kind.FAILURE:
                self._fail(self.failures[index])
            else:
                self._repair(self.failures[index])
        self.now = until
        return has_events

    def read(self) -> Reading:
        """Read the cluster; each ended job is in one reading only."""
        reading = self.glance()
        self._ended_jobs, self._final = [], {}
        return reading

    def glance(self) -> Reading:
        """Preview the next reading: ended jobs will be in it again."""
        jobs = (*self._ended_jobs, *(job.reading for job in self._jobs.values()))
        return Reading(
            self.now, tuple(self._nodes.values()), jobs, site=self._usage.rules(self.now)
        )

    def apply(self, steps: Sequence[Step]) -> Sequence[StepOutcome]:
        """Vacate GPUs for all steps, then place jobs for all steps.

        Raises:
            BrokenPlanError: if no real cluster could carry out a step.
        """
        self._free = dict(self._idle)
        for step in steps:
            job = self._jobs.get(step.job)
            if step.kind in (StepKind.PREEMPT, StepKind.MOVE) and job is not None:
                self._leave(job)
                if step.kind is StepKind.PREEMPT:
                    self._note(step.job, Allocation())
        return [self._outcome(step) for step in steps]

    def _outcome(self, step: Step) -> StepOutcome:
        job = self._jobs.get(step.job)
        if job is None:
            return StepOutcome(step, OutcomeStatus.GONE)
        if step.kind in (StepKind.START, StepKind.MOVE):
            if job.reading.allocation:
                return StepOutcome(step, OutcomeStatus.UNCHANGED, job.reading.allocation)
            self._place(job, step.target)
        return StepOutcome(step, OutcomeStatus.DONE, job.reading.allocation, started=self.now)

    def _arrive(self, spec: WorkloadJob) -> None:
        reading = JobReading(
            id=spec.id,
            user=spec.user,
            uid=0,
            name=str(spec.workload),
            comment=comment_of(
                self.claims.get(spec.id, spec),
                self._speeds.safe_name(spec.workload),
                with_samples=self.declares,
            ),
            time_limit_seconds=self.time_limits.get(spec.id),
            partition="virtual",
            state=SlurmState.PENDING,
            submit=spec.submit,
            hold=Hold.HOPS,
            dependency=self._early(spec),
            options=spec.options,
        )
        self._jobs[spec.id] = _VirtualJob(spec, spec.samples, reading)
        self._users[spec.id] = spec.user

    def _early(self, spec: WorkloadJob) -> bool:
        """Whether a job of an earlier phase of the same app has not ended."""
        phases = self._open_phases.get((spec.user, spec.app), ())
        return bool(spec.phase) and min(phases, default=spec.phase) < spec.phase

    def _place(self, job: _VirtualJob, target: Allocation) -> None:
        self._check(job, target)
        previous = self._before(job)
        for node, gpus in target:
            self._idle[node] -= gpus
        job.rate = self._speeds.rate(job.spec.workload, target)
        if previous.reading.allocation == target:
            self._go_on(job, previous)
        else:
            self._start(job, previous, target)
        job.version += 1
        end = job.trains_from + job.remaining / job.rate
        heapq.heappush(self._events, (end, _Kind.END, 0, job.spec.id, job.version))

    def _before(self, job: _VirtualJob) -> _Before:
        if job.before is None or job.before.time != self.now:
            job.before = _Before(self.now, job.started, job.reading, job.trains_from, job.remaining)
        return job.before

    def _start(self, job: _VirtualJob, previous: _Before, target: Allocation) -> None:
        settings = self.settings
        overhead = settings.restart_of(job.spec) if previous.started else settings.profiling_seconds
        arrives = self.now + self.planning_seconds + self._leaving_seconds(target)
        self.start_times.setdefault(job.spec.id, arrives)
        job.trains_from = arrives + overhead
        job.started = True
        job.reading = replace(
            job.reading,
            state=SlurmState.RUNNING,
            hold=Hold.NONE,
            start=self.now,
            allocation=target,
            restarts=previous.reading.restarts + previous.started,
        )
        self._note(job.spec.id, target)

    def _leaving_seconds(self, target: Allocation) -> float:
        """How long a job waits until others have left the GPUs that it gets and were not idle."""
        idle = all(gpus <= self._free.get(node, 0) for node, gpus in target)
        for node, gpus in target:
            self._free[node] = max(0, self._free.get(node, 0) - gpus)
        return 0.0 if idle else self.settings.leave_seconds

    def _go_on(self, job: _VirtualJob, previous: _Before) -> None:
        """Undo a stop: one plan took the job's GPUs, another at the same time gives them back."""
        job.trains_from, job.remaining = previous.trains_from, previous.remaining
        job.reading = replace(previous.reading, restarts=job.reading.restarts)
        position = bisect_left(self.changes, self.now, key=lambda change: change.time)
        self.changes[position:] = [c for c in self.changes[position:] if c.job != job.spec.id]

    def _check(self, job: _VirtualJob, target: Allocation) -> None:
        if target.gpus not in job.spec.reqs:
            raise BrokenPlanError(
                f"job {job.spec.id} got {target.gpus} GPUs; give it one of {job.spec.reqs}"
            )
        for node, gpus in target:
            if node not in self._nodes or not self._nodes[node].usable:
                raise BrokenPlanError(f"job {job.spec.id} was placed on {node}, which is not up")
            if is_cpu(self._nodes[node].gpu_type) and not job.spec.cpu:
                raise BrokenPlanError(f"job {job.spec.id} wants GPUs; {node} has CPUs")
            if gpus > self._idle[node]:
                raise BrokenPlanError(
                    f"job {job.spec.id} got {gpus} GPUs of {node}, which has {self._idle[node]}"
                )
        if self._speeds.rate(job.spec.workload, target) <= 0.0:
            raise BrokenPlanError(f"job {job.spec.id} cannot run on {target}")

    def _leave(self, job: _VirtualJob) -> None:
        """Vacate the job's GPUs because of a plan."""
        previous = self._before(job)
        self._vacate(job)
        job.started = previous.started

    def _vacate(self, job: _VirtualJob, lost_seconds: float = 0.0) -> None:
        job.remaining = min(job.spec.samples, job.remaining - job.samples(self.now) + lost_seconds)
        for node, gpus in job.reading.allocation:
            self._idle[node] += gpus
        job.rate = 0.0
        job.version += 1
        job.reading = replace(
            job.reading, state=SlurmState.PENDING, hold=Hold.HOPS, allocation=Allocation()
        )

    def _end(self, job: _VirtualJob) -> None:
        for node, gpus in job.reading.allocation:
            self._idle[node] += gpus
        self._ended_jobs.append(replace(job.reading, state=SlurmState.COMPLETED, end=self.now))
        del self._jobs[job.spec.id]
        self._final[job.spec.id] = job.spec.samples
        self._ended_samples += job.spec.samples
        self.finished += 1
        if job.spec.phase:
            self._next_phase(job.spec)
        self._note(job.spec.id, Allocation())

    def _next_phase(self, finished_job: WorkloadJob) -> None:
        self._open_phases[finished_job.user, finished_job.app].remove(finished_job.phase)
        for job in self._jobs.values():
            if (job.spec.user, job.spec.app) == (finished_job.user, finished_job.app):
                job.reading = replace(job.reading, dependency=self._early(job.spec))

    def _fail(self, failure: Failure) -> None:
        index = self.failures.index(failure)
        if failure.server is not None:
            self._set_usable(failure.server, usable=False)
            repair_time = self.now + failure.seconds
            heapq.heappush(self._events, (repair_time, _Kind.REPAIR, index, None, 0))
        for job in list(self._jobs.values()):
            is_hit = job.spec.id == failure.job or failure.server in job.reading.allocation.nodes
            if is_hit and job.rate:
                trained_seconds = max(0.0, self.now - job.trains_from)
                unsaved_seconds = trained_seconds % self.settings.checkpoint_seconds
                self._vacate(
                    job, lost_seconds=min(job.rate * unsaved_seconds, job.samples(self.now))
                )
                job.before = None
                self._note(job.spec.id, Allocation())

    def _repair(self, failure: Failure) -> None:
        """Bring the server back, unless another failure keeps it down."""
        if failure.server is not None and failure.server not in _unavailable(
            self.failures, self.now
        ):
            self._set_usable(failure.server, usable=True)

    def _set_usable(self, server: NodeName, *, usable: bool) -> None:
        text = "IDLE" if usable else "DOWN"
        self._nodes[server] = replace(self._nodes[server], usable=usable, state_text=text)

    def _note(self, job: JobId, placement: Allocation) -> None:
        self.changes.append(AllocationChange(self.now, job, placement))
        if self.shares and job in self._users:
            self._usage.holds(self.now, job, self._users[job], placement.gpus)

    def _stale(self, event: _Event) -> bool:
        _, kind, _, job_id, version = event
        if kind != _Kind.END or job_id is None:
            return False
        job = self._jobs.get(job_id)
        return job is None or job.version != version
