"""Records read back from the store to show what happened."""

from __future__ import annotations

from dataclasses import dataclass, field

from hopsd.model.allocation import Allocation
from hopsd.model.ids import GpuType, JobId
from hopsd.model.plan import Plan, PlanStatus
from hopsd.model.reason import Reason


@dataclass(frozen=True, slots=True)
class RecordedAllocation:
    """One allocation of a job from ``start`` to ``end`` (None while it lasts).

    ``submit`` is the job's first submit time, which distinguishes jobs if Slurm reuses an id.
    """

    job: JobId
    submit: float
    start: float
    allocation: Allocation
    end: float | None = None
    profiling: bool = False


@dataclass(frozen=True, slots=True)
class ReasonRecord:
    """Why a job waited from ``since`` to ``until`` (None while it does), in the latest wording."""

    job: JobId
    since: float
    reason: Reason
    until: float | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """Something an operator may want to know about: drift, a recovered plan, ...

    ``kind`` is a short word for programs, ``text`` a sentence for people.
    """

    at: float
    kind: str
    text: str
    job: JobId | None = None


@dataclass(frozen=True, slots=True)
class Control:
    """Whether an operator has paused hops, who did so and since when (epoch seconds)."""

    paused: bool = False
    by: str = ""
    since: float | None = None


@dataclass(frozen=True, slots=True)
class ReleaseRequest:
    """An operator's request to give ``jobs``, or if empty all held jobs, back to plain Slurm."""

    id: int
    at: float
    uid: int
    jobs: tuple[JobId, ...]


@dataclass(frozen=True, slots=True)
class PlanSummary:
    """A plan's figures.

    ``seconds``: the planning time; ``placed``: jobs that were given new or other GPUs; ``waiting``:
    jobs that got none. The others are as in :class:`Plan`.
    """

    made: float
    first: bool
    status: PlanStatus
    objective: float
    upper_bound: float
    gap: float
    fragments: int
    configurations: int
    seconds: float
    placed: int
    waiting: int
    rack_fragments: int = 0

    @classmethod
    def from_plan(cls, plan: Plan, time: float, *, first: bool) -> PlanSummary:
        return cls(
            time,
            first,
            plan.status,
            plan.objective,
            plan.upper_bound,
            plan.gap,
            plan.fragments,
            plan.configurations,
            plan.seconds.get("total", 0.0),
            len(plan.placements),
            len(plan.waiting),
            plan.rack_fragments,
        )


HOUR = 3600.0
"""Seconds."""


@dataclass(frozen=True, slots=True)
class GpuUse:
    """GPU-seconds of a type in the hour that begins at ``hour``, by what they were used for.

    ``hops``: held by jobs that hops schedules, or would be according to a shadow; ``plain``: held
    by other jobs; ``fragmented``: idle while a job waited for GPUs; ``idle``: idle while no job
    did; ``down``: on nodes that accept no jobs. ``rack_fragmented``: the part of ``fragmented``
    that was whole racks' worth of GPUs on racks that no waiting rack-bound job could use.
    """

    hour: float
    gpu_type: GpuType
    hops: float = 0.0
    plain: float = 0.0
    fragmented: float = 0.0
    idle: float = 0.0
    down: float = 0.0
    rack_fragmented: float = 0.0


@dataclass(frozen=True, slots=True)
class QueuePeriod:
    """The queue in a period of a given number of seconds from ``start`` on.

    ``waiting``: the mean number of waiting jobs; ``ended``: the number of jobs that ended, and
    ``wait_seconds``: their mean waiting time, None if no job ended.
    """

    start: float
    waiting: float = 0.0
    ended: int = 0
    wait_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class DiaryEntry:
    """What a shadow saw of a job that asked for ``gpus`` GPUs, of ``gpu_type`` or of any.

    ``planned``: when a plan of hops first placed the job, on ``nodes``; None if none has yet.
    """

    job: JobId
    submit: float
    gpus: int
    gpu_type: str = ""
    time_limit_seconds: float | None = None
    planned: float | None = None
    nodes: Allocation = field(default_factory=Allocation)
