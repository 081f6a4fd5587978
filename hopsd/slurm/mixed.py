"""Nodes with GPUs of several types, as with MIG profiles: hops treats each type as a separate node.

A node's types share its cores and memory. Each type gets a share in proportion to its GPUs and, of
the idle cores and memory, in proportion to its free GPUs: the shares never add up to more than the
node has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from hopsd.model.ids import GpuType, NodeName, host_of, part_of
from hopsd.model.reading import NodeReading

# Before this release Slurm keeps every type that a job ever asked for, and starts the job only on
# nodes with all of them (BadConstraints; gres_job_state_validate of 22.05 and 23.02, and seen live
# on 22.05).
OTHER_TYPE_SINCE = (23, 11)


def parts(node: NodeReading, counts: Mapping[GpuType, int]) -> list[NodeReading]:
    """Split ``node`` into one part per GPU type, with ``counts`` of GPUs."""
    total = sum(counts.values())
    return [
        replace(
            node,
            name=part_of(node.name, gpu_type),
            gpu_type=gpu_type,
            gpus=count,
            cores=node.cores * count // total,
            memory_mb=None if node.memory_mb is None else node.memory_mb * count // total,
        )
        for gpu_type, count in sorted(counts.items())
    ]


def with_idle_shares(
    nodes: Sequence[NodeReading], free: Mapping[NodeName, int]
) -> list[NodeReading]:
    """Return ``nodes`` with parts of mixed nodes given their shares of idle cores and memory.

    ``free`` has the free GPUs of each node or part.
    """
    host_gpus: Counter[NodeName] = Counter()
    for node in nodes:
        host_gpus[host_of(node.name)] += max(0, free.get(node.name, 0))
    return [
        _with_idle(node, max(0, free.get(node.name, 0)), host_gpus[host_of(node.name)])
        if node.is_mixed
        else node
        for node in nodes
    ]


def _with_idle(node: NodeReading, free: int, host_gpus: int) -> NodeReading:
    def share(idle: int | None, maximum: int | None) -> int | None:
        if idle is None or maximum is None:
            return None
        return min(maximum, idle * free // host_gpus) if host_gpus else 0

    return replace(
        node,
        idle_cores=share(node.idle_cores, node.cores),
        idle_memory_mb=share(node.idle_memory_mb, node.memory_mb),
    )


def places(names: Iterable[NodeName], nodes: Iterable[NodeReading]) -> dict[NodeName, int]:
    """Map each node to its position in Slurm's node table, ``names``; parts have their node's."""
    order = {name: position for position, name in enumerate(names)}
    return order | {node.name: order[host_of(node.name)] for node in nodes if node.is_mixed}
