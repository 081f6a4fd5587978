"""A snapshot as if jobs held other GPUs than they do."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction

from hopsd.model.allocation import Allocation
from hopsd.model.ids import JobId, NodeName
from hopsd.model.job import Job, Node
from hopsd.model.plan import Snapshot


def with_allocations(
    snapshot: Snapshot, given: Mapping[JobId, Allocation], without: Collection[JobId] = ()
) -> Snapshot:
    """The snapshot as if each job of ``given`` ran there, and without the jobs ``without``.

    A node's ``idle`` is negative if competing jobs have to make room.
    """
    if not given and not without:
        return snapshot
    gpus: Counter[NodeName] = Counter()
    cores: Counter[NodeName] = Counter()
    memory_mb: dict[NodeName, Fraction] = defaultdict(Fraction)
    jobs = []
    for job in snapshot.jobs:
        if job.id in given:
            for sign, allocation in ((-1, job.running), (1, given[job.id])):
                for node, *amounts in _amounts(job, allocation):
                    gpus[node] += sign * int(amounts[0])
                    cores[node] += sign * int(amounts[1])
                    memory_mb[node] += sign * amounts[2]
            job = replace(job, running=given[job.id])
        if job.id not in without:
            jobs.append(job)
    nodes = tuple(
        _less(node, gpus[node.name], cores[node.name], memory_mb[node.name])
        if gpus[node.name] or cores[node.name] or memory_mb[node.name]
        else node
        for node in snapshot.nodes
    )
    return replace(snapshot, nodes=nodes, jobs=tuple(jobs))


def _amounts(
    job: Job, allocation: Allocation
) -> Iterator[tuple[NodeName, int, int, Fraction]]:
    """GPUs, cores and memory in MB that the job takes of each node."""
    for node, gpus in allocation:
        yield node, gpus, job.rules.cores(gpus), Fraction(job.rules.memory_mb(gpus))


def _less(node: Node, gpus: int, cores: int, memory_mb: Fraction) -> Node:
    """The node with so much less idle."""
    if node.cores is not None:
        idle = node.cores if node.idle_cores is None else node.idle_cores
        node = replace(node, idle_cores=min(node.cores, idle - cores))
    if node.memory_mb is not None:
        free = node.memory_mb if node.idle_memory_mb is None else node.idle_memory_mb
        node = replace(node, idle_memory_mb=min(node.memory_mb, free - float(memory_mb)))
    return replace(node, idle=node.idle - gpus)
