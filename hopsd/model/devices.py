"""CPUs as devices instead of GPUs, with a type called ``cpu`` or ``cpu-...``.

A server of such a type has CPUs where others have GPUs: one a socket, or one a node, as the
operator counts them; to Slurm they are GRES like any GPU (docs/admin.md). Jobs run there if their
user said that CPUs will do, on as many devices as one of their GPU counts, at the speed of their
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

    Also true of ``cpu (PARTITION)``, as :mod:`hopsd.core.submission.partitions` may name it.
    """
    kind = gpu_type.partition(" ")[0]
    return kind == CPU or kind.startswith(f"{CPU}-")


def cpu_nodes(reading: Reading) -> tuple[NodeName, ...]:
    """The nodes whose devices are CPUs."""
    return tuple(node.name for node in reading.nodes if is_cpu(node.gpu_type))


def cores_of(node: NodeReading, reserved_cores: int) -> int:
    """Cores per CPU device of a node that keeps ``reserved_cores`` cores for others: an equal part
    of the rest.

    Slurm gives whole cores, so it is a multiple of their hardware threads.
    """
    threads = max(1, (node.cores - reserved_cores * node.threads) // node.gpus)
    return max(node.threads, threads - threads % node.threads)


def without_cpus(cluster: Cluster) -> Cluster:
    """Its servers with GPUs."""
    servers = tuple(server for server in cluster.servers if not is_cpu(server.gpu_type))
    return replace(cluster, servers=servers)


def usable(
    tables: Mapping[GpuType, ThroughputTable], *, cpu: bool
) -> Mapping[GpuType, ThroughputTable]:
    """The throughput tables of the types a job may use: CPUs only if its user wants them."""
    return tables if cpu else {t: table for t, table in tables.items() if not is_cpu(t)}
