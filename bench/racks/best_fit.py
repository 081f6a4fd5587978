"""Slurm's way: jobs one after the other, each on the leaves that fit it best."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from hopsd.core.placement.rack_sets import keeps_racks
from hopsd.model.allocation import Allocation
from hopsd.model.ids import JobId, NodeName
from hopsd.model.job import Job
from hopsd.model.plan import Snapshot


def best_fit(snapshot: Snapshot, order: Iterable[Job], *, largest: bool) -> dict[JobId, Allocation]:
    """Placements of jobs in ``order``, each with the ``largest`` of its counts that fits, or with
    its smallest.

    Jobs with even counts take whole nodes: their segments go to the leaf with the fewest free nodes
    that holds all of the rest, or else to the one with most, as topology/block does. Others take
    the node that fits best or, on several, those with most free GPUs.
    """
    free = {node.name: node.idle for node in snapshot.nodes}
    leaf = {node.name: node.leaf for node in snapshot.nodes}
    found = {}
    for job in order:
        for gpus in sorted(job.reqs, reverse=True) if largest else job.reqs[:1]:
            parts = dict(_even(job, gpus, free, leaf) if job.rules.per_node else _any(gpus, free))
            if parts and keeps_racks(job.rules, [leaf[name] for name in parts]):
                for name, given in parts.items():
                    free[name] -= given
                found[job.id] = Allocation.of(parts)
                break
    return found


def _even(
    job: Job, gpus: int, free: dict[NodeName, int], leaf: dict[NodeName, str]
) -> Iterator[tuple[NodeName, int]]:
    each = job.rules.per_node or gpus
    missing = gpus // each
    unit = min(job.rules.segment or 1, missing)
    able: dict[str, list[NodeName]] = defaultdict(list)
    for name, idle in free.items():
        if idle >= each:
            able[leaf[name]].append(name)
    chosen: list[NodeName] = []
    while missing:
        enough = [own for own in able.values() if len(own) >= missing]
        own = min(enough, key=len) if enough else max(able.values(), key=len, default=[])
        taken = min(missing, len(own)) // unit * unit
        if not taken:
            return
        chosen += own[:taken]
        del own[:taken]
        missing -= taken
    yield from ((name, each) for name in chosen)


def _any(gpus: int, free: dict[NodeName, int]) -> Iterator[tuple[NodeName, int]]:
    one = [name for name, idle in free.items() if idle >= gpus]
    if one:
        yield min(one, key=free.__getitem__), gpus
        return
    missing = gpus
    for name in sorted(free, key=free.__getitem__, reverse=True):
        given = min(missing, free[name])
        if given:
            yield name, given
        missing -= given
        if not missing:
            return
