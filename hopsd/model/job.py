"""A job as a plan sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from hopsd.model.allocation import Allocation
from hopsd.model.ids import AppName, GpuType, JobId, NodeName, UserName
from hopsd.model.rules import ANYWHERE, Rules


class JobState(StrEnum):
    """``WAITING`` also for running jobs; the other three are in no queue."""

    WAITING = "waiting"
    HELD = "held"
    DEPENDENCY = "dependency"
    PROFILING = "profiling"


@dataclass(frozen=True, slots=True)
class ThroughputTable:
    """Per-GPU throughput of one job on one GPU type: the estimator's answer, or a file's.

    ``aggregated`` by GPU count in one server, ``distributed`` by server count when spread
    (whatever the GPU count). Between two counts: linear; outside: the nearest.
    An empty ``distributed`` means that the job cannot be spread on this type.
    ``source``: who says so; ``aggregated_source`` and ``distributed_source`` where it differs
    from count to count.
    """

    aggregated: Mapping[int, float]
    distributed: Mapping[int, float] = field(default_factory=dict)
    source: str = "table"
    aggregated_source: Mapping[int, str] = field(default_factory=dict)
    distributed_source: Mapping[int, str] = field(default_factory=dict)

    def source_of(self, gpus: int, nodes: int) -> str:
        """Who says how fast ``gpus`` GPUs on ``nodes`` servers are; of the nearest count."""
        sources, count = (
            (self.distributed_source, nodes) if nodes > 1 else (self.aggregated_source, gpus)
        )
        if not sources:
            return self.source
        return sources[min(sources, key=lambda known: (abs(known - count), known))]


@dataclass(frozen=True, slots=True)
class Job:
    """What a policy knows of one job. Throughput absent for a type: it cannot run there.

    ``wait_seconds`` is all the time spent eligible but not running, over all restarts.
    ``age_seconds`` is the expected run time without waiting (eq. 9), None: computed.
    ``running`` is where it runs now since ``running_since``, empty while it waits. ``app`` and its
    ``phase``: as in the comment. ``contention``: mean number of apps present in its life so far,
    None: not known. ``app_gpu_seconds``: spent by jobs of the app that have ended. ``rules``: what
    every placement of it must keep.
    """

    id: JobId
    user: UserName
    submit: float
    wait_seconds: float
    reqs: tuple[int, ...]
    throughput: Mapping[GpuType, ThroughputTable]
    age_seconds: float | None = None
    priority: float | None = None
    samples: float | None = None
    state: JobState = JobState.WAITING
    restart_seconds: float = 0.0
    time_limit_seconds: float | None = None
    preemptible: bool = True
    running: Allocation = field(default_factory=Allocation)
    sensitivity: float | None = None
    server_factor: Mapping[NodeName, float] = field(default_factory=dict)
    samples_done: float = 0.0
    attained_gpu_seconds: float = 0.0
    run_seconds: float = 0.0
    run_seconds_by_type: Mapping[GpuType, float] = field(default_factory=dict)
    restarts: int = 0
    running_since: float | None = None
    app: AppName | None = None
    phase: int = 0
    contention: float | None = None
    app_gpu_seconds: float = 0.0
    rules: Rules = ANYWHERE
