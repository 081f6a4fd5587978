"""How to request exactly one allocation, and how Slurm fills nodes for an uneven one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import ceil

from hopsd.model.allocation import Allocation
from hopsd.model.ids import NodeName, host_of
from hopsd.model.reading import JobReading, NodeReading
from hopsd.slurm.adapter import Placement

Release = tuple[int, int]

# After a requeue 22.05 keeps the total cores that cpusPerTres gave: the next shape over several
# nodes gets those of the last. 24.11 and 26.05 do not, and refuse (BadConstraints) tasks whose
# cores do not add up to the request. No release in between was tried.
CORES_BY_GPU_SINCE: Release = (23, 2)

# 24.11 also takes as many cores for each unit of the job's other GRES: VRAM:20G would never fit.
_CORES_BY_GPU_ALONE_SINCE: Release = (26, 5)


def update_arguments(placement: Placement, release: Release) -> list[str]:
    """Return the ``key=value`` words of the ``scontrol update`` that requests ``placement``.

    ``numnodes`` is always set: without it 24.11 and later run on the first of the named nodes
    alone. A job that asked for no tasks gets one per node, so that ``srun`` starts one launcher per
    node in every shape: with a task for each GPU, ``srun --ntasks-per-node=1`` is ignored on
    uneven shapes (22.05).
    """
    allocation, options = placement.allocation, placement.options
    kind = f"gpu:{options.gpu_type}" if options.gpu_type else "gpu"
    other_gres = [f"gres:{item}" for item in options.gres.split(",") if item]
    even = allocation.even
    per_node = [f"gres:{kind}:{allocation.parts[0][1]}"] if even else []
    return [
        f"reqnodelist={','.join(map(host_of, allocation.nodes))}",
        f"numnodes={len(allocation.nodes)}",
        *(_even_tasks if even else _uneven_tasks)(placement, release),
        *_memory(placement),
        *([f"partition={placement.partition}"] if placement.partition else []),
        *_time_limit(placement.time_limit_minutes),
        f"tresPerJob={'' if even else f'gres:{kind}:{allocation.gpus}'}",
        f"tresPerNode={','.join(per_node + other_gres)}",
        "starttime=now",
    ]


def _time_limit(minutes: int | None) -> list[str]:
    return [] if minutes is None else [f"timelimit={minutes or 'UNLIMITED'}"]


def _even_tasks(placement: Placement, release: Release) -> list[str]:
    """Request tasks and cores, the same on every node. ``mincpusnode`` is what a node's tasks need:
    with more no job fits, and with less some of several nodes get a single core (22.05).
    """
    gpus, nodes = placement.allocation.parts[0][1], len(placement.allocation.nodes)
    tasks = placement.options.tasks(gpus)
    words = [f"numtasks={tasks * nodes}", f"TasksPerNode={tasks}"]
    if _cores_by_gpu(placement, release):
        return [*words, f"cpusPerTres=gres:gpu:{ceil(placement.cores_per_gpu)}"]
    cores = max(1, ceil(placement.cores_per_gpu * gpus) // tasks)
    node_cores = cores * tasks
    return [
        *words,
        f"numcpus={node_cores * nodes}",
        f"cpuspertask={cores}",
        f"mincpusnode={node_cores}",
    ]


def _uneven_tasks(placement: Placement, release: Release) -> list[str]:
    """Request one task per node: job_submit.lua lets no other job have uneven shapes."""
    allocation = placement.allocation
    words = [f"numtasks={len(allocation.nodes)}", "TasksPerNode=0"]
    cores_per_gpu = ceil(placement.cores_per_gpu)
    if _cores_by_gpu(placement, release):
        return [*words, f"cpusPerTres=gres:gpu:{cores_per_gpu}"]
    min_gpus = min(gpus for _, gpus in allocation)
    return [
        *words,
        f"numcpus={allocation.gpus * cores_per_gpu}",
        "cpuspertask=1",
        f"mincpusnode={min_gpus * cores_per_gpu}",
    ]


def _cores_by_gpu(placement: Placement, release: Release) -> bool:
    if placement.options.exclusive:
        return False  # Slurm would count all GPUs of the job's nodes, and refuse (24.11, 26.05)
    return release >= (_CORES_BY_GPU_ALONE_SINCE if placement.options.gres else CORES_BY_GPU_SINCE)


def _memory(placement: Placement) -> list[str]:
    if placement.memory_mb_per_gpu is not None:
        return [f"MemPerTres=gres:gpu:{placement.memory_mb_per_gpu}"]
    if placement.memory_mb_per_node is not None:
        return [f"MinMemoryNode={placement.memory_mb_per_node}"]
    if placement.memory_mb_per_core is not None:
        return [f"MinMemoryCPU={placement.memory_mb_per_core}"]
    return []


def reset_arguments(release: Release) -> list[str]:
    """Return the words of an update that must come first if the job has a request for GPUs per job
    or for another GPU type.

    In a single update, Slurm would check the new request against the old one (22.05).
    """
    return [
        *("tresPerJob=", "tresPerNode=", *clear_cores(release)),
        *("numnodes=1", "numtasks=1", "TasksPerNode=0", "numcpus=1"),
    ]


def clear_cores(release: Release) -> list[str]:
    """Return the word that clears a job's cores per GPU, on releases where hops sets them."""
    return ["cpusPerTres="] if release >= CORES_BY_GPU_SINCE else []


def fill_nodes(
    free: Mapping[NodeName, int], nodes: Sequence[NodeName], gpus: int
) -> Allocation | None:
    """Predict Slurm's allocation of ``gpus`` per job on ``nodes``, given in the cluster's order.

    Slurm takes all free GPUs of each node, but leaves at least one GPU for each later node
    (22.05.8 and 26.05.5). None if the nodes have too few GPUs, or ``gpus`` is too few for one each.
    """
    gpus_by_node = {}
    remaining = gpus
    for later, node in zip(range(len(nodes) - 1, -1, -1), nodes, strict=True):
        gpus_by_node[node] = min(free.get(node, 0), remaining - later)
        if gpus_by_node[node] < 1:
            return None
        remaining -= gpus_by_node[node]
    return Allocation.of(gpus_by_node) if remaining == 0 else None


def fits(free: Mapping[NodeName, int], allocation: Allocation) -> bool:
    """Whether the ``free`` GPUs suffice for an allocation."""
    return all(free.get(node, 0) >= gpus for node, gpus in allocation)


def free_gpus(nodes: Iterable[NodeReading], jobs: Iterable[JobReading]) -> dict[NodeName, int]:
    """The GPUs of each of ``nodes`` that neither ``jobs`` nor jobs outside of hops hold."""
    free = {node.name: node.gpus - node.foreign_gpus for node in nodes}
    for job in jobs:
        for node, gpus in job.allocation:
            if node in free:
                free[node] -= gpus
    return free
