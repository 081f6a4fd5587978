"""How Slurm is asked for exactly one allocation, and what it makes of an uneven one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hopsd.model.allocation import Allocation
from hopsd.model.ids import NodeName

Release = tuple[int, int]

# 22.05 keeps the cores that cpusPerTres summed up to after a requeue: the next shape over several
# nodes gets those of the last. 24.11 and 26.05 do not, and refuse (BadConstraints) tasks whose
# cores do not add up to what is asked. No release between them was tried.
CORES_BY_GPU_SINCE: Release = (23, 2)


def update_arguments(allocation: Allocation, cpus_per_gpu: int, release: Release) -> list[str]:
    """``key=value`` words of the ``scontrol update`` that asks for ``allocation``.

    One task a node, so that ``srun`` starts one launcher a node in every shape: with a task
    for each GPU, ``srun --ntasks-per-node=1`` is ignored on uneven shapes (22.05).
    ``numnodes`` is always named: without it 24.11 and later run on the first of the named nodes
    alone.
    """
    nodes = len(allocation.nodes)
    if allocation.even:
        gpus = ["tresPerJob=", f"tresPerNode=gres:gpu:{allocation.parts[0][1]}"]
    else:
        gpus = ["tresPerNode=", f"tresPerJob=gres:gpu:{allocation.gpus}"]
    if release >= CORES_BY_GPU_SINCE:
        cores = [f"cpusPerTres=gres:gpu:{cpus_per_gpu}"]
    else:
        cores = _summed_cores(allocation, cpus_per_gpu)
    return [
        f"reqnodelist={','.join(allocation.nodes)}",
        f"numnodes={nodes}",
        f"numtasks={nodes}",
        *cores,
        *gpus,
        "starttime=now",
    ]


def reset_arguments(release: Release) -> list[str]:
    """Words of the update that must go before, where a job asks for GPUs as a whole.

    In the same update as a new shape, Slurm checks the new against the old request (22.05).
    """
    cores = ["cpusPerTres="] if release >= CORES_BY_GPU_SINCE else []
    return ["tresPerJob=", *cores, "numnodes=1", "numtasks=1", "numcpus=1"]


def _summed_cores(allocation: Allocation, cpus_per_gpu: int) -> list[str]:
    """22.05: cores belong to the task on one node, to the job on several.

    ``mincpusnode`` above a task's cores is BadConstraints on one node, and ``cpuspertask`` gives
    some nodes a single core on several.
    """
    cpus = allocation.gpus * cpus_per_gpu
    if not allocation.spread:
        return [f"numcpus={cpus}", f"cpuspertask={cpus}", "mincpusnode=1"]
    least = min(gpus for _, gpus in allocation)
    return [f"numcpus={cpus}", "cpuspertask=1", f"mincpusnode={least * cpus_per_gpu}"]


def filled(free: Mapping[NodeName, int], nodes: Sequence[NodeName], gpus: int) -> Allocation | None:
    """What Slurm makes of ``gpus`` asked per job on ``nodes``, given in the cluster's order.

    It takes from each node all that is free, but leaves one GPU at least for each later node
    (22.05.8 and 26.05.5). None where the nodes cannot give as many, or too few for each node.
    """
    given = {}
    left = gpus
    for later, node in zip(range(len(nodes) - 1, -1, -1), nodes, strict=True):
        given[node] = min(free.get(node, 0), left - later)
        if given[node] < 1:
            return None
        left -= given[node]
    return Allocation.of(given) if left == 0 else None


def fits(free: Mapping[NodeName, int], allocation: Allocation) -> bool:
    return all(free.get(node, 0) >= gpus for node, gpus in allocation)
