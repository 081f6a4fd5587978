"""How fast a workload trains on an allocation: the truth of the virtual cluster."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import count

from hopsd.core.speed.throughput import interpolate, per_gpu
from hopsd.model.allocation import Allocation
from hopsd.model.ids import GpuType, NodeName, WorkloadName
from hopsd.model.job import ThroughputTable
from hopsd.model.knowledge import Knowledge
from hopsd.model.scenario import Cluster, Workload

_SAFE = re.compile(r"[A-Za-z0-9._-]{1,64}")


def _safe_names(names: Sequence[WorkloadName]) -> dict[WorkloadName, WorkloadName]:
    """Map names to unique names that a comment may carry; other names become numbers."""
    safe = {name: name for name in names if _SAFE.fullmatch(name)}
    new_names = (WorkloadName(f"workload-{number}") for number in count())
    free = (name for name in new_names if name not in safe)
    return {name: safe.get(name) or next(free) for name in names}


class AllocationSpeeds:
    """Reads a workload's tables and server factors for whole allocations."""

    def __init__(self, cluster: Cluster, workload: Workload) -> None:
        self._type = {server.name: server.gpu_type for server in cluster.servers}
        self._leaf = {server.name: server.leaf for server in cluster.servers}
        self._workload = workload
        self._rates: dict[tuple[WorkloadName, Allocation], float] = {}
        self._safe = _safe_names(tuple(workload.throughput))

    def rate(self, workload: WorkloadName, allocation: Allocation) -> float:
        """Samples per second of the whole job; 0 if it cannot run there."""
        key = (workload, allocation)
        if key not in self._rates:
            self._rates[key] = self._rate(workload, allocation)
        return self._rates[key]

    def _rate(self, workload: WorkloadName, allocation: Allocation) -> float:
        tables = self._workload.throughput[workload]
        factors = self._workload.server_factor.get(workload, {})
        per_gpu = [
            self._per_gpu(tables, self._type[node], allocation) * factors.get(node, 1.0)
            for node in allocation.nodes
        ]
        leaves = len({self._leaf[node] for node in allocation.nodes})
        by_leaves = self._workload.across.get(workload)
        factor = interpolate(by_leaves, leaves) if by_leaves else 1.0
        return min(per_gpu, default=0.0) * allocation.gpus * factor

    def _per_gpu(
        self, tables: Mapping[GpuType, ThroughputTable], gpu_type: GpuType, allocation: Allocation
    ) -> float:
        table = tables.get(gpu_type)
        if table is None:
            return 0.0
        return per_gpu(table, allocation.gpus, len(allocation.nodes))

    def safe_name(self, workload: WorkloadName) -> WorkloadName:
        """A name that a job's comment may carry."""
        return self._safe[workload]

    def knowledge(self) -> Knowledge:
        """What the scheduler knows: the unchanged tables, under their safe names."""
        factors: dict[WorkloadName, Mapping[NodeName, float]] = {
            self._safe[name]: factor for name, factor in self._workload.server_factor.items()
        }
        tables = {self._safe[name]: t for name, t in self._workload.throughput.items()}
        leaf_factors = {
            self._safe[name]: by_leaves for name, by_leaves in self._workload.across.items()
        }
        return Knowledge(tables=tables, server_factor=factors, across=leaf_factors)
