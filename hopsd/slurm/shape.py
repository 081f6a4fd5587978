"""How Slurm is asked for exactly one allocation, and what it makes of an uneven one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hopsd.model.allocation import Allocation
from hopsd.model.ids import NodeName


def update_arguments(allocation: Allocation, cpus_per_gpu: int) -> list[str]:
    """``key=value`` words of the ``scontrol update`` that asks for ``allocation``.

    One task a node, so that ``srun`` starts one launcher a node in every shape: with a task
    for each GPU, ``srun --ntasks-per-node=1`` is ignored on uneven shapes (22.05). Cores are
    asked for without ``cpusPerTres``, whose sum sticks to the job after a requeue (22.05: the
    next shape over several nodes gets the cores of the last). On one node they belong to the
    task, on several to the job: ``mincpusnode`` above a task's cores is BadConstraints on one
    node, and ``cpuspertask`` gives some nodes a single core on several. ``numnodes`` is always
    named: without it 24.11 and later run on the first of the named nodes alone.
    """
    cpus = allocation.gpus * cpus_per_gpu
    nodes = len(allocation.nodes)
    if nodes == 1:
        cores = [f"cpuspertask={cpus}", "mincpusnode=1"]
    else:
        least = min(gpus for _, gpus in allocation)
        cores = ["cpuspertask=1", f"mincpusnode={least * cpus_per_gpu}"]
    if allocation.even:
        gpus = ["tresPerJob=", f"tresPerNode=gres:gpu:{allocation.parts[0][1]}"]
    else:
        gpus = ["tresPerNode=", f"tresPerJob=gres:gpu:{allocation.gpus}"]
    return [
        f"reqnodelist={','.join(allocation.nodes)}",
        f"numnodes={nodes}",
        f"numtasks={nodes}",
        f"numcpus={cpus}",
        *cores,
        *gpus,
        "starttime=now",
    ]


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
