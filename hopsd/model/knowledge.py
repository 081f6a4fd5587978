"""What is known about how fast workloads run (section 3.3 of the paper)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hopsd.model.ids import GpuType, NodeName, UserName, WorkloadName
from hopsd.model.job import ThroughputTable


@dataclass(frozen=True, slots=True)
class ThroughputRecord:
    """Measured samples per second per GPU of one run in one shape.

    ``node`` is the one the figure belongs to; ``gpus`` and ``nodes`` describe the whole
    allocation. One record a report; every entity record also counts for its type.
    """

    workload: WorkloadName
    gpu_type: GpuType
    node: NodeName
    gpus: int
    nodes: int
    per_gpu: float
    at: float


@dataclass(frozen=True, slots=True)
class Knowledge:
    """``tables``: the operator's, from the configuration, final. ``records``: what jobs reported.

    ``server_factor`` goes with ``tables``: it multiplies the per-GPU throughput on a server.

    ``median_age_seconds`` of finished jobs, by workload and by user (section 3 of the
    algorithm): the expected run time of a job that names neither samples nor a time limit.
    """

    tables: Mapping[WorkloadName, Mapping[GpuType, ThroughputTable]] = field(default_factory=dict)
    server_factor: Mapping[WorkloadName, Mapping[NodeName, float]] = field(default_factory=dict)
    records: tuple[ThroughputRecord, ...] = ()
    median_age_by_workload: Mapping[WorkloadName, float] = field(default_factory=dict)
    median_age_by_user: Mapping[UserName, float] = field(default_factory=dict)
