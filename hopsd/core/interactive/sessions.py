"""Plans sessions, which come before all other waiting jobs: their GPUs, and who makes room."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import lru_cache

from hopsd.core.interactive.session_room import Room
from hopsd.core.interactive.settings import SessionSettings
from hopsd.core.queue.competing import competes, idle_gpus
from hopsd.core.queue.history import OCCUPYING_STATES
from hopsd.core.queue.profiling import ClusterView
from hopsd.core.queue.reallocation import with_allocations
from hopsd.core.submission.comment import parse
from hopsd.errors import InputError
from hopsd.model.allocation import Allocation
from hopsd.model.devices import is_cpu
from hopsd.model.history import JobRecord
from hopsd.model.ids import JobId, UserName, job_order
from hopsd.model.job import Job
from hopsd.model.plan import Plan, Snapshot
from hopsd.model.reason import Reason, ReasonCode, count_of
from hopsd.model.rules import Limit
from hopsd.model.step import Step, StepKind


@lru_cache(maxsize=16384)
def is_session(comment: str) -> bool:
    """Whether a job's comment asks for a session."""
    if "interactive" not in comment:
        return False
    try:
        return parse(comment).interactive
    except InputError:
        return False


@dataclass(frozen=True, slots=True)
class SessionPlan:
    """The part of a plan about sessions. ``snapshot``: what is left for all other jobs.

    ``placements``: of sessions that start, and of trainings that shrink for them; ``stops``: steps
    of trainings that stop for them. In a round's first plan, no trainings are in either: the policy
    chooses who makes room. ``waiting``: why sessions wait. ``causes``: for whom trainings make
    room. ``notes``: what the users of sessions should know.
    """

    snapshot: Snapshot
    placements: Mapping[JobId, Allocation] = field(default_factory=dict)
    stops: tuple[Step, ...] = ()
    waiting: Mapping[JobId, Reason] = field(default_factory=dict)
    causes: Mapping[JobId, str] = field(default_factory=dict)
    notes: Mapping[JobId, str] = field(default_factory=dict)

    def compatible_with(self, plan: Plan) -> SessionPlan:
        """Drop sessions for which the policy made no room; one that never preempts makes none."""
        free = Counter(
            dict(zip((n.name for n in self.snapshot.nodes), idle_gpus(self.snapshot), strict=True))
        )
        for allocation in plan.placements.values():
            free.subtract(dict(allocation))
        unfit = {
            job: _NO_ROOM
            for job, allocation in self.placements.items()
            if any(free[node] < 0 for node in allocation.nodes)
        }
        if not unfit:
            return self
        placements = {
            job: allocation for job, allocation in self.placements.items() if job not in unfit
        }
        return replace(self, placements=placements, waiting={**self.waiting, **unfit})


_NOTE = "a session (interactive): hops does not move it"

_NO_ROOM = Reason(
    ReasonCode.LOST_TO_OTHERS,
    "no GPU that it may use is idle, and no training that saves can make room: it starts as soon"
    " as one ends",
)


def plan_sessions(snapshot: Snapshot, view: ClusterView, settings: SessionSettings) -> SessionPlan:
    """Place the waiting sessions in the order of their submission, and keep the reserve.

    In a further plan, trainings that save shrink or stop for them at once. A first plan only counts
    the sessions' GPUs as taken, and the policy decides which jobs move.
    """
    sessions = {job.id for job in snapshot.jobs if view.comments[job.id].interactive}
    if not sessions and not settings.reserve:
        return SessionPlan(snapshot)
    waiting = [j for j in snapshot.jobs if j.id in sessions and competes(j, first=False)]
    waiting.sort(key=lambda job: (job.submit, job_order(job.id)))
    proven_jobs = _proven_jobs(snapshot, view.records)
    room = Room(snapshot, [job for job in snapshot.jobs if _may_move(job)], proven_jobs)
    quota = _Quota(snapshot, view, settings)
    rejections: dict[JobId, Reason] = {}
    for job in waiting:
        reason = quota.refusal(job)
        if reason is None and room.place(job) is None:
            reason = _NO_ROOM
        if reason is None:
            quota.take(job)
        else:
            rejections[job.id] = reason
    placements, concessions = dict(room.placements), room.concessions
    stops: tuple[Step, ...] = ()
    if not snapshot.round.first:
        placements |= {
            job: concession.target for job, concession in concessions.items() if concession.target
        }
        stops = tuple(
            Step(job, StepKind.PREEMPT, current=concession.job.running, cause=concession.cause)
            for job, concession in concessions.items()
            if not concession.target
        )
    absent = rejections.keys() | {step.job for step in stops}
    changes = {**placements, **{step.job: Allocation() for step in stops}}
    remaining = with_allocations(snapshot, changes, absent)
    remaining = replace(
        remaining,
        jobs=tuple(
            replace(job, preemptible=False) if job.id in placements else job
            for job in remaining.jobs
        ),
    )
    if settings.reserve:
        row = _reserve(remaining, sessions, proven_jobs, settings.reserve)
        remaining = replace(remaining, limits=(*remaining.limits, row))
    causes = {job: concession.cause for job, concession in concessions.items() if job in placements}
    notes = {job.id: _NOTE for job in snapshot.jobs if job.id in sessions and job.running}
    return SessionPlan(remaining, placements, stops, rejections, causes, notes)


def _may_move(job: Job) -> bool:
    return bool(job.running) and competes(job, first=True)


def _proven_jobs(snapshot: Snapshot, records: Mapping[JobId, JobRecord]) -> frozenset[JobId]:
    """Return the movable jobs that are known to leave within seconds.

    They, or another job of their workload and user, were seen to save or to continue training after
    a restart.
    """
    kinds = {
        (record.user, record.workload)
        for record in records.values()
        if record.saved or record.restart_seconds
    }
    return frozenset(
        job.id
        for job in snapshot.jobs
        if job.preemptible and (job.user, records[job.id].workload) in kinds
    )


def _capacity(snapshot: Snapshot) -> int:
    """Return the number of GPUs that are idle, or held by jobs of the snapshot."""
    gpus = {node.name for node in snapshot.nodes if not is_cpu(node.gpu_type)}
    gpus_running = sum(
        count for job in snapshot.jobs for node, count in job.running if node in gpus
    )
    return gpus_running + sum(node.idle for node in snapshot.nodes if node.name in gpus)


def _reserve(
    snapshot: Snapshot, sessions: AbstractSet[JobId], proven_jobs: AbstractSet[JobId], reserve: int
) -> Limit:
    """Limit jobs that do not leave within seconds to what sessions and the reserve leave."""
    session_gpus = sum(job.running.gpus for job in snapshot.jobs if job.id in sessions)
    slow = frozenset(job.id for job in snapshot.jobs) - sessions - proven_jobs
    return Limit(
        f"the reserve of {count_of(reserve, 'GPUs')} for sessions, which only jobs that were seen"
        " to save may use",
        slow,
        gpus=max(0, _capacity(snapshot) - session_gpus - reserve),
    )


def session_limits(
    snapshot: Snapshot, sessions: AbstractSet[JobId], settings: SessionSettings
) -> tuple[Limit, ...]:
    """The site's limits on the GPUs of sessions, per user and in total.

    :func:`plan_sessions` keeps to them by itself; whoever predicts starts needs them.
    """
    by_user: dict[UserName, set[JobId]] = defaultdict(set)
    for job in snapshot.jobs:
        if job.id in sessions:
            by_user[job.user].add(job.id)
    most = _most_gpus(snapshot, settings)
    return (
        Limit("[interactive] share", frozenset(sessions), gpus=most),
        *(
            Limit("[interactive] user_gpus", frozenset(jobs), gpus=settings.user_gpus)
            for jobs in by_user.values()
        ),
    )


def _most_gpus(snapshot: Snapshot, settings: SessionSettings) -> int:
    """Return the number of GPUs that all sessions together may have."""
    return max(1, int(settings.share * _capacity(snapshot)))


class _Quota:
    """Limits the GPUs of sessions, per user and in total."""

    def __init__(self, snapshot: Snapshot, view: ClusterView, settings: SessionSettings) -> None:
        self._settings = settings
        self._max_gpus = _most_gpus(snapshot, settings)
        self._held_gpus: Counter[UserName] = Counter()
        for job in view.reading.jobs:
            if job.state in OCCUPYING_STATES and is_session(job.comment):
                self._held_gpus[job.user] += job.allocation.gpus

    def refusal(self, job: Job) -> Reason | None:
        """Return why the session may not have its GPUs now; None if it may."""
        gpus, limit = job.reqs[0], self._settings.user_gpus
        if gpus > limit:
            text = (
                f"it asks for {count_of(gpus, 'GPUs')}, and the sessions of one user may have"
                f" {limit} ([interactive] user_gpus): ask for fewer, or submit it with sbatch,"
                " without interactive"
            )
            return Reason(ReasonCode.NO_CONFIGURATION, text)
        if (session_gpus := self._held_gpus[job.user]) + gpus > limit:
            text = f"your sessions have {session_gpus} of the {limit} GPUs allowed per user"
            return Reason(ReasonCode.LIMIT, f"{text}: end one of them (scancel)")
        if gpus > self._max_gpus:
            text = (
                f"it asks for {count_of(gpus, 'GPUs')}, and all sessions may have {self._max_gpus}"
                " ([interactive] share): ask for fewer, or submit it with sbatch, without"
                " interactive"
            )
            return Reason(ReasonCode.NO_CONFIGURATION, text)
        if (session_gpus := self._held_gpus.total()) + gpus > self._max_gpus:
            text = (
                f"all sessions have {session_gpus} of the {self._max_gpus} GPUs that they may have"
            )
            return Reason(ReasonCode.LIMIT, f"{text}: it starts when one ends")
        return None

    def take(self, job: Job) -> None:
        self._held_gpus[job.user] += job.reqs[0]
