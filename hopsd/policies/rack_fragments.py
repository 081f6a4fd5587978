"""GPUs that a plan leaves idle on racks that no waiting job bound to racks can use."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from math import ceil

from hopsd.model.ids import GpuType, NodeName
from hopsd.model.job import Job, Node
from hopsd.model.plan import Plan, PlanSettings, Snapshot
from hopsd.policies.wrapper import Wrapper


class RackFragments(Wrapper):
    """A policy whose plans include their ``rack_fragments``."""

    def __call__(self, snapshot: Snapshot, settings: PlanSettings) -> Plan:
        plan: Plan = self._policy(snapshot, settings)
        return replace(plan, rack_fragments=rack_fragments(snapshot, plan))


def rack_fragments(snapshot: Snapshot, plan: Plan) -> int:
    """Sum of :func:`rack_fragments_by_type` over all types."""
    return sum(rack_fragments_by_type(snapshot, plan).values())


def rack_fragments_by_type(snapshot: Snapshot, plan: Plan) -> dict[GpuType, int]:
    """Whole racks' worth of GPUs that are idle but scattered: the GPUs on leaves that have no room
    for a group of nodes of any waiting rack-bound job, rounded down to whole leaves (the largest
    of the type). Empty if no such job waits.
    """
    waiting = [job for job in snapshot.jobs if job.id in plan.waiting and job.rules.rack_bound]
    if not waiting:
        return {}
    idle = idle_after(snapshot, plan)
    by_type: dict[GpuType, dict[str, list[Node]]] = defaultdict(lambda: defaultdict(list))
    for node in snapshot.nodes:
        by_type[node.gpu_type][node.leaf].append(node)
    fragments = {}
    for gpu_type, leaves in by_type.items():
        largest = max(node.gpus for nodes in leaves.values() for node in nodes)
        jobs = [job for job in waiting if gpu_type in job.throughput]
        groups = {group for job in jobs for group in _groups(job, largest)}
        scattered_gpus = 0
        for nodes in leaves.values():
            free = [idle[node.name] for node in nodes]
            if groups and not any(
                sum(gpus >= gpus_each for gpus in free) >= count for count, gpus_each in groups
            ):
                scattered_gpus += sum(free)
        rack = max(sum(node.gpus for node in nodes) for nodes in leaves.values())
        fragments[gpu_type] = scattered_gpus // rack * rack
    return fragments


def idle_after(snapshot: Snapshot, plan: Plan) -> Mapping[NodeName, int]:
    """Idle GPUs of each node once the plan is carried out."""
    idle = {node.name: node.idle for node in snapshot.nodes}
    for job in snapshot.jobs:
        if job.id in plan.placements or job.id in plan.waiting:
            for name, gpus in job.running or ():
                idle[name] = idle.get(name, 0) + gpus
        for name, gpus in plan.placements.get(job.id, ()):
            idle[name] = idle.get(name, 0) - gpus
    return idle


def _groups(job: Job, largest: int) -> set[tuple[int, int]]:
    """Groups of nodes that the job needs on one leaf, as (nodes, GPUs on each), over its counts."""
    rules = job.rules
    groups = set()
    for size in rules.counts(job.reqs):
        gpus_each = rules.per_node or min(size, largest)
        count = ceil(size / gpus_each)
        segment = rules.segment
        if segment is not None and count % segment and count > segment:
            continue
        if segment is None:
            groups.add((ceil(count / (rules.max_switches or count)), ceil(size / count)))
        else:
            groups.add((min(count, segment), ceil(size / count)))
    return groups
