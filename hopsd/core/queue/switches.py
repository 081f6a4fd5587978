"""Which leaf switches a job with ``--switches`` may use: the plan gives it nodes on these alone.

Jobs choose one after the other, in the order of their submission, and each leaves what it could
take to those after it. A job chooses the switches where it would be fastest with the GPUs that are
free, then those that have the fewest to spare; where it cannot start now, those where it would be
fastest on an idle cluster. One that runs keeps its switches.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from hopsd.core.queue.competing import competing_jobs, idle_gpus
from hopsd.core.speed.throughput import per_gpu
from hopsd.model.ids import GpuType, JobId, NodeName, job_order
from hopsd.model.job import Job, Node
from hopsd.model.plan import Snapshot
from hopsd.model.rules import ShapeRule


@dataclass(frozen=True, slots=True)
class _Group:
    """Nodes of one GPU type on some switches, those with most free GPUs first. ``free``: of each
    node, 0 where it is promised already; ``gpus``: of each when idle, the largest first;
    ``room``: what is free on all, below 0 where more is promised than there is.
    """

    switches: tuple[str, ...]
    nodes: tuple[NodeName, ...]
    free: tuple[int, ...]
    gpus: tuple[int, ...]
    room: int


class _Nodes:
    """The nodes that some jobs may use. A group of them is put together again only after a claim
    on one of its switches: many jobs ask for the same.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        switch_of: Mapping[NodeName, str],
        free: Mapping[NodeName, int],
        claims: Mapping[str, int],
    ) -> None:
        self._free, self._claims = free, claims
        self.on: dict[str, list[NodeName]] = defaultdict(list)
        self._pools: dict[GpuType, dict[str, list[Node]]] = defaultdict(lambda: defaultdict(list))
        for node in nodes:
            switch = switch_of.get(node.name, "")
            self.on[switch].append(node.name)
            self._pools[node.gpu_type][switch].append(node)
        self.gpu_types = tuple(self._pools)
        self._known: dict[tuple[GpuType, tuple[str, ...]], tuple[int, _Group]] = {}

    def group(self, gpu_type: GpuType, *switches: str) -> _Group:
        claims = sum(self._claims[switch] for switch in switches)
        known = self._known.get((gpu_type, switches))
        if known is None or known[0] != claims:
            known = claims, self._together(gpu_type, switches)
            self._known[gpu_type, switches] = known
        return known[1]

    def _together(self, gpu_type: GpuType, switches: tuple[str, ...]) -> _Group:
        pool, free = self._pools[gpu_type], self._free
        nodes = [node for switch in switches for node in pool.get(switch, ())]
        names = tuple(sorted((node.name for node in nodes), key=lambda name: -free[name]))
        return _Group(
            switches,
            names,
            tuple(max(0, free[name]) for name in names),
            tuple(sorted((node.gpus for node in nodes), reverse=True)),
            sum(free[name] for name in names),
        )


@dataclass(frozen=True, slots=True)
class _Choice:
    """Switches, and what the job would get of one GPU type there: ``speed`` in samples per second
    with what is free (``gpus``), ``at_best`` when all is idle.
    """

    group: _Group
    gpus: int
    speed: float
    at_best: float

    @property
    def worth(self) -> tuple[float, float, int]:
        if self.speed:
            return self.speed, 0.0, -self.group.room
        return 0.0, self.at_best, self.group.room


def on_switches(
    snapshot: Snapshot, most: Mapping[JobId, int], switch_of: Mapping[NodeName, str]
) -> Snapshot:
    """The snapshot with each job of ``most`` kept to nodes on at most that many leaf switches.

    A node without a switch counts as on one with the others of that kind.
    """
    wanting = [job for job in competing_jobs(snapshot) if job.id in most]
    if not wanting:
        return snapshot
    wanting.sort(key=lambda job: (not job.running, job.submit, job_order(job.id)))
    free = dict(zip((n.name for n in snapshot.nodes), idle_gpus(snapshot), strict=True))
    claims: dict[str, int] = defaultdict(int)
    usable: dict[frozenset[NodeName] | None, _Nodes] = {}
    kept: dict[JobId, Job] = {}
    for job in wanting:
        allowed = job.rules.nodes
        if allowed not in usable:
            own = [node for node in snapshot.nodes if allowed is None or node.name in allowed]
            usable[allowed] = _Nodes(own, switch_of, free, claims)
        nodes = usable[allowed]
        if len(nodes.on) <= most[job.id] or job.rules.shape is ShapeRule.NODE:
            continue
        choice = max(_choices(job, nodes, most[job.id]), key=lambda one: one.worth)
        _claim(free, job, choice)
        for switch in choice.group.switches:
            claims[switch] += 1
        chosen = frozenset(name for switch in choice.group.switches for name in nodes.on[switch])
        kept[job.id] = replace(job, rules=replace(job.rules, nodes=chosen))
    return replace(snapshot, jobs=tuple(kept.get(job.id, job) for job in snapshot.jobs))


def _choices(job: Job, nodes: _Nodes, most: int) -> Iterator[_Choice]:
    """For each GPU type the switches to choose among; of several at a time only those with most."""
    held: dict[str, int] = {}
    if job.running:
        held = {switch: sum(map(job.running.on, names)) for switch, names in nodes.on.items()}
    stays = sorted((s for s in held if held[s]), key=held.__getitem__, reverse=True)[:most]
    others = [switch for switch in nodes.on if switch not in stays]
    for gpu_type in nodes.gpu_types:

        def room(switch: str, gpu_type: GpuType = gpu_type) -> tuple[int, int]:
            group = nodes.group(gpu_type, switch)
            return group.room, sum(group.gpus)

        added = most - len(stays)
        if added == 1:
            sets = [(*stays, switch) for switch in others]
        else:
            sets = [(*stays, *sorted(others, key=room, reverse=True)[:added])]
        best: dict[tuple[int, ...], tuple[float, int]] = {}
        for switches in sets:
            group = nodes.group(gpu_type, *switches)
            for free in (group.free, group.gpus):
                if free not in best:
                    best[free] = _fastest(job, gpu_type, free)
            speed, gpus = best[group.free]
            yield _Choice(group, gpus, speed, best[group.gpus][0])


def _fastest(job: Job, gpu_type: GpuType, free: Sequence[int]) -> tuple[float, int]:
    """The job's highest speed on nodes with these ``free`` GPUs, most first, and its GPUs then."""
    table = job.throughput.get(gpu_type)
    best = 0.0, 0
    for gpus in job.rules.counts(job.reqs) if table is not None else ():
        nodes = _nodes_for(gpus, free, job.rules.per_node)
        if table is not None and nodes and job.rules.enough(gpu_type, gpus):
            best = max(best, (gpus * per_gpu(table, gpus, nodes), gpus))
    return best


def _nodes_for(gpus: int, free: Sequence[int], per_node: int | None) -> int:
    """How many of the nodes ``gpus`` take; 0: they do not hold so many."""
    given = 0
    for number, here in enumerate(free, 1):
        given += here if per_node is None else per_node * (here >= per_node)
        if given >= gpus:
            return number
        if here < (per_node or 1):
            return 0
    return 0


def _claim(free: dict[NodeName, int], job: Job, choice: _Choice) -> None:
    """Take what the job could get; of one that waits, the least that it needs."""
    left = choice.gpus or min(job.rules.counts(job.reqs), default=0)
    if not choice.gpus and choice.group.nodes:
        free[choice.group.nodes[0]] -= left
        return
    for name in choice.group.nodes:
        taken = min(left, max(0, free[name]))
        free[name] -= taken
        left -= taken
