"""Best fit like Slurm's: jobs are placed one by one, each on the leaves that fit it best."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from hopsd.core.placement.rack_sets import keeps_racks
from hopsd.model.allocation import Allocation
from hopsd.model.ids import JobId, NodeName
from hopsd.model.job import Job
from hopsd.model.plan import Snapshot


def best_fit(snapshot: Snapshot, order: Iterable[Job], *, largest: bool) -> dict[JobId, Allocation]:
    """Place jobs in ``order``, each with the ``largest`` of its counts that fits, or its smallest.

    Jobs with even counts take whole nodes: their segments go to the leaf with the fewest free nodes
    that holds all remaining segments, or else to the leaf with the most, as topology/block does.
    Other jobs take the node that fits best or, if they need several, those with the most free GPUs.
    """
    free = {node.name: node.idle for node in snapshot.nodes}
    leaf = {node.name: node.leaf for node in snapshot.nodes}
    placements = {}
    for job in order:
        for gpus in sorted(job.reqs, reverse=True) if largest else job.reqs[:1]:
            parts = dict(
                _place_even(job, gpus, free, leaf) if job.rules.per_node else _place_any(gpus, free)
            )
            if parts and keeps_racks(job.rules, [leaf[name] for name in parts]):
                for name, count in parts.items():
                    free[name] -= count
                placements[job.id] = Allocation.of(parts)
                break
    return placements


def _place_even(
    job: Job, gpus: int, free: dict[NodeName, int], leaf: dict[NodeName, str]
) -> Iterator[tuple[NodeName, int]]:
    per_node = job.rules.per_node or gpus
    missing = gpus // per_node
    unit = min(job.rules.segment or 1, missing)
    able: dict[str, list[NodeName]] = defaultdict(list)
    for name, idle in free.items():
        if idle >= per_node:
            able[leaf[name]].append(name)
    selection: list[NodeName] = []
    while missing:
        enough = [leaf_nodes for leaf_nodes in able.values() if len(leaf_nodes) >= missing]
        leaf_nodes = min(enough, key=len) if enough else max(able.values(), key=len, default=[])
        node_count = min(missing, len(leaf_nodes)) // unit * unit
        if not node_count:
            return
        selection += leaf_nodes[:node_count]
        del leaf_nodes[:node_count]
        missing -= node_count
    yield from ((name, per_node) for name in selection)


def _place_any(gpus: int, free: dict[NodeName, int]) -> Iterator[tuple[NodeName, int]]:
    fitting_nodes = [name for name, idle in free.items() if idle >= gpus]
    if fitting_nodes:
        yield min(fitting_nodes, key=free.__getitem__), gpus
        return
    missing = gpus
    for name in sorted(free, key=free.__getitem__, reverse=True):
        count = min(missing, free[name])
        if count:
            yield name, count
        missing -= count
        if not missing:
            return
