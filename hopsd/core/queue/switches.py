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
from hopsd.model.cluster import Node
from hopsd.model.ids import GpuType, JobId, NodeName, job_order
from hopsd.model.job import Job
from hopsd.model.plan import Snapshot
from hopsd.model.rules import ShapeRule


@dataclass(frozen=True, slots=True)
class _Choice:
    """Switches, and what the job would get of one GPU type there: ``speed`` in samples per second
    with what is free (``gpus``), ``at_best`` when all is idle; ``room``: GPUs that are free.
    """

    switches: tuple[str, ...]
    nodes: tuple[NodeName, ...]
    gpus: int
    speed: float
    at_best: float
    room: int

    @property
    def worth(self) -> tuple[float, float, int]:
        if self.speed:
            return self.speed, 0.0, -self.room
        return 0.0, self.at_best, self.room


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
    kept: dict[JobId, Job] = {}
    for job in wanting:
        nodes = [n for n in snapshot.nodes if job.rules.nodes is None or n.name in job.rules.nodes]
        by_switch: dict[str, list[Node]] = defaultdict(list)
        for node in nodes:
            by_switch[switch_of.get(node.name, "")].append(node)
        if len(by_switch) <= most[job.id] or job.rules.shape is ShapeRule.NODE:
            continue
        choice = max(_choices(job, by_switch, most[job.id], free), key=lambda one: one.worth)
        _claim(free, job, choice)
        allowed = {node.name for switch in choice.switches for node in by_switch[switch]}
        kept[job.id] = replace(job, rules=replace(job.rules, nodes=frozenset(allowed)))
    return replace(snapshot, jobs=tuple(kept.get(job.id, job) for job in snapshot.jobs))


def _choices(
    job: Job, by_switch: Mapping[str, Sequence[Node]], most: int, free: Mapping[NodeName, int]
) -> Iterator[_Choice]:
    """For each GPU type the switches to choose among; of several at a time only those with most."""
    held = {s: sum(job.running.on(node.name) for node in nodes) for s, nodes in by_switch.items()}
    stays = sorted((s for s in by_switch if held[s]), key=held.__getitem__, reverse=True)[:most]
    others = [switch for switch in by_switch if switch not in stays]
    for gpu_type in dict.fromkeys(node.gpu_type for nodes in by_switch.values() for node in nodes):
        pool = {s: [n for n in nodes if n.gpu_type == gpu_type] for s, nodes in by_switch.items()}

        def room(switch: str, pool: Mapping[str, Sequence[Node]] = pool) -> tuple[int, int]:
            return sum(free[n.name] for n in pool[switch]), sum(n.gpus for n in pool[switch])

        added = most - len(stays)
        if added == 1:
            sets = [(*stays, switch) for switch in others]
        else:
            sets = [(*stays, *sorted(others, key=room, reverse=True)[:added])]
        for switches in sets:
            yield _choice(job, gpu_type, switches, [n for s in switches for n in pool[s]], free)


def _choice(
    job: Job,
    gpu_type: GpuType,
    switches: tuple[str, ...],
    nodes: Sequence[Node],
    free: Mapping[NodeName, int],
) -> _Choice:
    names = tuple(sorted((n.name for n in nodes), key=lambda name: -free[name]))
    speed, gpus = _fastest(job, gpu_type, [free[name] for name in names])
    at_best, _ = _fastest(job, gpu_type, sorted((n.gpus for n in nodes), reverse=True))
    return _Choice(switches, names, gpus, speed, at_best, sum(free[name] for name in names))


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
    if not choice.gpus and choice.nodes:
        free[choice.nodes[0]] -= left
        return
    for name in choice.nodes:
        taken = min(left, max(0, free[name]))
        free[name] -= taken
        left -= taken
