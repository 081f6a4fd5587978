"""CPUs that are scheduled like GPUs, as devices of a type called ``cpu`` or ``cpu-...``.

A server of such a type has CPU devices instead of GPUs, one per socket or one per node, as the
operator chooses; to Slurm they are GRES like any GPU (docs/admin.md). A job runs there only if its
user accepts CPUs. Its number of devices is one of its GPU counts, and its speed is that of its
throughput table for the type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hopsd.model.ids import GpuType, NodeName
from hopsd.model.job import ThroughputTable
from hopsd.model.reading import NodeReading, Reading
from hopsd.model.scenario import Cluster

CPU = GpuType("cpu")


def is_cpu(gpu_type: GpuType) -> bool:
    """Whether the devices are CPUs.

    This includes ``cpu (PARTITION)``, a name that :mod:`hopsd.core.submission.partitions` may use.
    """
    kind = gpu_type.partition(" ")[0]
    return kind == CPU or kind.startswith(f"{CPU}-")


def cpu_nodes(reading: Reading) -> tuple[NodeName, ...]:
    """The nodes whose devices are CPUs."""
    return tuple(node.name for node in reading.nodes if is_cpu(node.gpu_type))


def cores_of(node: NodeReading, reserved_cores: int) -> int:
    """Return Slurm's CPUs per device of a CPU node: an equal share of all but ``reserved_cores``.

    Slurm allocates whole cores, so the result is a multiple of the hardware threads per core.
    """
    threads = max(1, (node.cores - reserved_cores * node.threads) // node.gpus)
    return max(node.threads, threads - threads % node.threads)


def without_cpus(cluster: Cluster) -> Cluster:
    """Return ``cluster`` without its CPU servers."""
    servers = tuple(server for server in cluster.servers if not is_cpu(server.gpu_type))
    return replace(cluster, servers=servers)


def usable(
    tables: Mapping[GpuType, ThroughputTable], *, cpu: bool
) -> Mapping[GpuType, ThroughputTable]:
    """Return the throughput tables of the types a job may use: CPUs only if ``cpu``."""
    return tables if cpu else {t: table for t, table in tables.items() if not is_cpu(t)}
