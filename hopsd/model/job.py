"""A job and a node as a policy sees them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from hopsd.model.allocation import Allocation
from hopsd.model.ids import AppName, GpuType, JobId, NodeName, UserName
from hopsd.model.rules import ANYWHERE, Rules


class JobState(StrEnum):
    """A job's state in the queue: ``WAITING`` includes running jobs; the others do not compete."""

    WAITING = "waiting"
    HELD = "held"
    DEPENDENCY = "dependency"
    PROFILING = "profiling"


Shape = tuple[int, int]
"""The numbers of GPUs and of servers in an allocation, all of one GPU type."""


class ByShape(Protocol):
    """Estimates of samples per second per GPU, for ``gpus`` GPUs on ``nodes`` servers of a type."""

    def per_gpu(self, gpus: int, nodes: int) -> float:
        """Return the estimate."""
        ...

    def interval(self, gpus: int, nodes: int) -> tuple[float, float]:
        """Return the 80 % interval of the estimate."""
        ...

    def source(self, gpus: int, nodes: int) -> str:
        """Say where the estimate comes from, in words."""
        ...


@dataclass(frozen=True, slots=True)
class ThroughputTable:
    """Per-GPU throughput of one job on one GPU type, from the estimator or from a file.

    ``aggregated``: by GPU count in one server; ``distributed``: by server count when spread,
    regardless of the GPU count. Values are interpolated linearly between counts; outside, the
    nearest count applies. If ``distributed`` is empty, the job cannot be spread on this type.
    ``source``: where the figures come from; ``aggregated_source`` and ``distributed_source``: the
    same by count, where it differs.

    ``by_shape``: estimates by GPU and server count. If present, they take precedence, and the two
    tables only summarise them.
    """

    aggregated: Mapping[int, float]
    distributed: Mapping[int, float] = field(default_factory=dict)
    source: str = "table"
    aggregated_source: Mapping[int, str] = field(default_factory=dict)
    distributed_source: Mapping[int, str] = field(default_factory=dict)
    by_shape: ByShape | None = None

    def source_of(self, gpus: int, nodes: int) -> str:
        """Say where the figure for ``gpus`` GPUs on ``nodes`` servers (nearest count) is from."""
        if self.by_shape is not None:
            return self.by_shape.source(gpus, nodes)
        sources, count = (
            (self.distributed_source, nodes) if nodes > 1 else (self.aggregated_source, gpus)
        )
        if not sources:
            return self.source
        return sources[
            min(sources, key=lambda source_count: (abs(source_count - count), source_count))
        ]


@dataclass(frozen=True, slots=True)
class Job:
    """What a policy knows about one job. It cannot run on types missing from ``throughput``.

    ``wait_seconds`` is the total time spent eligible but not running, over all restarts.
    ``age_seconds`` is the expected run time without waiting (eq. 9); if None, it is computed.
    ``server_factor`` multiplies the per-GPU throughput on a server; for shapes measured there,
    ``server_factor_at`` replaces it. ``running``: the allocation held since ``running_since``,
    empty if the job waits. ``waiting_since``: when a waiting job last held GPUs, None if it never
    did. ``app`` and ``phase``: as in the comment. ``contention``: mean number of apps present
    during the job's life so far, None if unknown. ``app_gpu_seconds``: GPU-seconds of the jobs of
    the app that have ended. ``rules``: constraints on every placement of the job. ``across``:
    factors on the throughput by the number of leaf switches that the job spans, interpolated as in
    a table; 1 if empty.
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
    across: Mapping[int, float] = field(default_factory=dict)
    share: float = 1.0
    qos_weight: float = 1.0
    tier: int = 1
    gives_way: bool = True

    def factor_on(self, node: NodeName, gpus: int, nodes: int) -> float:
        """Return a server's speed relative to its type, for ``gpus`` GPUs on ``nodes`` servers."""
        shape_factor = self.server_factor_at.get((gpus, nodes))
        if shape_factor is not None and node in shape_factor:
            return shape_factor[node]
        return self.server_factor.get(node, 1.0)


@dataclass(frozen=True, slots=True)
class Node:
    """A schedulable server with ``gpus`` GPUs of one type, of which ``idle`` are free now.

    ``cores`` and ``memory_mb`` are totals, None if the resource is never scarce; ``idle_cores`` and
    ``idle_memory_mb`` are free now, None if all are. ``switches``: those above the node, top down.
    """

    name: NodeName
    gpu_type: GpuType
    gpus: int
    idle: int
    cores: int | None = None
    idle_cores: int | None = None
    memory_mb: float | None = None
    idle_memory_mb: float | None = None
    switches: tuple[str, ...] = ()

    @property
    def leaf(self) -> str:
        """The node's leaf switch, block or rack; nodes without one share the leaf ""."""
        return self.switches[-1] if self.switches else ""
