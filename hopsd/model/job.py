"""A job as a plan sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from hopsd.model.allocation import Allocation
from hopsd.model.ids import AppName, GpuType, JobId, NodeName, UserName
from hopsd.model.rules import ANYWHERE, Rules


class JobState(StrEnum):
    """``WAITING`` also for running jobs; the other three are in no queue."""

    WAITING = "waiting"
    HELD = "held"
    DEPENDENCY = "dependency"
    PROFILING = "profiling"


Shape = tuple[int, int]
"""GPUs and servers of an allocation, all of one type."""


class ByShape(Protocol):
    """Samples per second per GPU of ``gpus`` GPUs on ``nodes`` servers of one type."""

    def per_gpu(self, gpus: int, nodes: int) -> float:
        """The estimate."""
        ...

    def between(self, gpus: int, nodes: int) -> tuple[float, float]:
        """Where it lies with four chances of five."""
        ...

    def source(self, gpus: int, nodes: int) -> str:
        """Who says so."""
        ...


@dataclass(frozen=True, slots=True)
class ThroughputTable:
    """Per-GPU throughput of one job on one GPU type: the estimator's answer, or a file's.

    ``aggregated`` by GPU count in one server, ``distributed`` by server count when spread
    (whatever the GPU count). Between two counts: linear; outside: the nearest.
    An empty ``distributed`` means that the job cannot be spread on this type.
    ``source``: who says so; ``aggregated_source`` and ``distributed_source`` where it differs
    from count to count.

    ``by_shape``: an estimate of every shape at its own counts. Where there is one it answers, and
    the two tables are a summary of it.
    """

    aggregated: Mapping[int, float]
    distributed: Mapping[int, float] = field(default_factory=dict)
    source: str = "table"
    aggregated_source: Mapping[int, str] = field(default_factory=dict)
    distributed_source: Mapping[int, str] = field(default_factory=dict)
    by_shape: ByShape | None = None

    def source_of(self, gpus: int, nodes: int) -> str:
        """Who says how fast ``gpus`` GPUs on ``nodes`` servers are; of the nearest count."""
        if self.by_shape is not None:
            return self.by_shape.source(gpus, nodes)
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
    ``server_factor`` multiplies the per-GPU throughput on a server; ``server_factor_at`` instead
    of it in the shapes that were measured there. ``running`` is where it runs now since
    ``running_since``, empty while it waits, again since ``waiting_since`` (None: it never ran).
    ``app`` and its ``phase``: as in the comment. ``contention``: mean number of apps present in its
    life so far, None: not known. ``app_gpu_seconds``: spent by jobs of the app that have ended.
    ``rules``: what every placement of it must keep.
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
    server_factor_at: Mapping[Shape, Mapping[NodeName, float]] = field(default_factory=dict)
    samples_done: float = 0.0
    attained_gpu_seconds: float = 0.0
    run_seconds: float = 0.0
    run_seconds_by_type: Mapping[GpuType, float] = field(default_factory=dict)
    restarts: int = 0
    running_since: float | None = None
    waiting_since: float | None = None
    app: AppName | None = None
    phase: int = 0
    contention: float | None = None
    app_gpu_seconds: float = 0.0
    rules: Rules = ANYWHERE
    share: float = 1.0
    qos_weight: float = 1.0
    tier: int = 1
    gives_way: bool = True

    def factor_on(self, node: NodeName, gpus: int, nodes: int) -> float:
        """Of a server against its type, for ``gpus`` GPUs on ``nodes`` servers."""
        own = self.server_factor_at.get((gpus, nodes))
        if own is not None and node in own:
            return own[node]
        return self.server_factor.get(node, 1.0)
