"""A snapshot in which jobs hold other GPUs than they really do."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import replace
from fractions import Fraction

from hopsd.model.allocation import Allocation
from hopsd.model.ids import JobId, NodeName
from hopsd.model.job import Job, Node
from hopsd.model.plan import Snapshot


def with_allocations(
    snapshot: Snapshot,
    allocations: Mapping[JobId, Allocation],
    removed_jobs: Collection[JobId] = (),
) -> Snapshot:
    """Return the snapshot as if each job of ``allocations`` ran there, without ``removed_jobs``.

    A node's ``idle`` is negative if competing jobs have to make room.
    """
    if not allocations and not removed_jobs:
        return snapshot
    gpus: Counter[NodeName] = Counter()
    cores: Counter[NodeName] = Counter()
    memory_mb: dict[NodeName, Fraction] = defaultdict(Fraction)
    jobs = []
    for job in snapshot.jobs:
        for sign, allocation in _changes(job, allocations):
            for node, count in allocation:
                gpus[node] += sign * count
                cores[node] += sign * job.rules.cores(count)
                memory_mb[node] += sign * job.rules.memory_mb(count)
        if job.id not in removed_jobs:
            jobs.append(replace(job, running=allocations.get(job.id, job.running)))
    nodes = tuple(
        _reduced_node(node, gpus[node.name], cores[node.name], memory_mb[node.name])
        if gpus[node.name] or cores[node.name] or memory_mb[node.name]
        else node
        for node in snapshot.nodes
    )
    return replace(snapshot, nodes=nodes, jobs=tuple(jobs))


def _changes(
    job: Job, allocations: Mapping[JobId, Allocation]
) -> tuple[tuple[int, Allocation], ...]:
    """Return what the job gives back (-1) and takes (1)."""
    return ((-1, job.running), (1, allocations[job.id])) if job.id in allocations else ()


def _reduced_node(node: Node, gpus: int, cores: int, memory_mb: Fraction) -> Node:
    """Subtract these amounts from what is idle on the node."""
    if node.cores is not None:
        idle = node.cores if node.idle_cores is None else node.idle_cores
        node = replace(node, idle_cores=min(node.cores, idle - cores))
    if node.memory_mb is not None:
        free = node.memory_mb if node.idle_memory_mb is None else node.idle_memory_mb
        node = replace(node, idle_memory_mb=min(node.memory_mb, free - float(memory_mb)))
    return replace(node, idle=node.idle - gpus)
