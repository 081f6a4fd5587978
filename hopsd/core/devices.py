"""CPUs in place of GPUs: a type whose devices are CPUs is called ``cpu`` or ``cpu-...``.

A server of such a type has CPUs where others have GPUs: one a socket, or one a node, as the
operator counts them. Jobs run there if their user said that CPUs will do, on as many devices as
one of their GPU counts, at the speed of their throughput table for the type.
"""

from __future__ import annotations

from collections.abc import Mapping

from hopsd.model.ids import GpuType
from hopsd.model.job import ThroughputTable

CPU = GpuType("cpu")


def is_cpu(gpu_type: GpuType) -> bool:
    return gpu_type == CPU or gpu_type.startswith(f"{CPU}-")


def usable(
    tables: Mapping[GpuType, ThroughputTable], *, cpu: bool
) -> Mapping[GpuType, ThroughputTable]:
    """The types that a job may run on: without CPUs unless its user wants them."""
    return tables if cpu else {t: table for t, table in tables.items() if not is_cpu(t)}
