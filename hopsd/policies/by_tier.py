"""A wrapper that plans partitions' tiers one after the other, the highest first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from hopsd.core.queue.competing import competes
from hopsd.model.allocation import Allocation
from hopsd.model.ids import JobId, NodeName
from hopsd.model.job import Job, Node
from hopsd.model.plan import Plan, PlanSettings, PlanStatus, Snapshot
from hopsd.policies.wrapper import Wrapper

_WORST = (
    PlanStatus.OPTIMAL,
    PlanStatus.WITHIN_GAP,
    PlanStatus.TIME_LIMIT,
    PlanStatus.FALLBACK,
)


class ByTier(Wrapper):
    """Plans jobs of a higher tier (PriorityTier of their partition) as if those of lower tiers
    did not exist; lower tiers get what is left.

    At a round's start, running jobs of lower tiers are checkpointed and stopped if a higher tier
    takes their GPUs, unless their partition's PreemptMode is OFF. With one tier nothing changes.
    """

    def __call__(self, snapshot: Snapshot, settings: PlanSettings) -> Plan:
        first = snapshot.round.first
        tiers = sorted({job.tier for job in snapshot.jobs if competes(job, first=first)})
        if len(tiers) < 2:
            return self._policy(snapshot, settings)
        tier_settings = replace(
            settings, time_limit_seconds=settings.time_limit_seconds / len(tiers)
        )
        plans: list[Plan] = []
        placements: dict[JobId, Allocation] = {}
        for tier in reversed(tiers):
            plans.append(self._policy(_tier_snapshot(snapshot, tier, placements), tier_settings))
            placements |= plans[-1].placements
        return _merge_plans(plans)


def _tier_snapshot(
    snapshot: Snapshot, tier: int, placements: Mapping[JobId, Allocation]
) -> Snapshot:
    """Return the snapshot as jobs of ``tier`` see it; ``placements`` are those of higher tiers."""
    first = snapshot.round.first
    jobs: list[Job] = []
    lower_tier: list[tuple[Job, Allocation]] = []
    higher_tier: list[tuple[Job, Allocation]] = []
    for job in snapshot.jobs:
        if job.tier == tier or not competes(job, first=first):
            jobs.append(job)
        elif job.tier > tier:
            lower_tier.append((job, job.running))
            if job.id in placements:
                higher_tier.append((job, placements[job.id]))
                jobs.append(replace(job, running=placements[job.id], preemptible=False))
        elif job.running and not job.gives_way:
            jobs.append(replace(job, preemptible=False))
        else:
            lower_tier.append((job, job.running))
    nodes = _adjust_idle(snapshot.nodes, lower_tier, 1)
    return replace(snapshot, nodes=_adjust_idle(nodes, higher_tier, -1), jobs=tuple(jobs))


def _adjust_idle(
    nodes: Sequence[Node], allocations: Sequence[tuple[Job, Allocation]], sign: int
) -> tuple[Node, ...]:
    """Return ``nodes`` with what ``allocations`` take added to the idle (1) or removed (-1)."""
    jobs_by_node: dict[NodeName, list[tuple[Job, int]]] = defaultdict(list)
    for job, allocation in allocations:
        for name, gpus in allocation:
            jobs_by_node[name].append((job, gpus))
    return tuple(
        _node(node, jobs_by_node[node.name], sign) if node.name in jobs_by_node else node
        for node in nodes
    )


def _node(node: Node, jobs: Sequence[tuple[Job, int]], sign: int) -> Node:
    gpus = sum(count for _, count in jobs)
    node = replace(node, idle=node.idle + sign * gpus)
    if node.cores is not None:
        idle = node.cores if node.idle_cores is None else node.idle_cores
        idle += sign * sum(job.rules.cores(count) for job, count in jobs)
        node = replace(node, idle_cores=max(0, min(idle, node.cores)))
    if node.memory_mb is not None:
        free = node.memory_mb if node.idle_memory_mb is None else node.idle_memory_mb
        free += sign * float(sum(job.rules.memory_mb(count) for job, count in jobs))
        node = replace(node, idle_memory_mb=max(0.0, min(free, node.memory_mb)))
    return node


def _merge_plans(plans: Sequence[Plan]) -> Plan:
    objective = sum(plan.objective for plan in plans)
    bound = sum(plan.upper_bound for plan in plans)
    seconds: dict[str, float] = defaultdict(float)
    for plan in plans:
        for stage, stage_seconds in plan.seconds.items():
            seconds[stage] += stage_seconds
    return Plan(
        placements={j: a for plan in plans for j, a in plan.placements.items()},
        objective=objective,
        upper_bound=bound,
        gap=(bound - objective) / bound if bound > 0 else 0.0,
        status=max((plan.status for plan in plans), key=_WORST.index),
        window=tuple(job for plan in plans for job in plan.window),
        adjusted=tuple(job for plan in plans for job in plan.adjusted),
        fragments=plans[-1].fragments if plans[-1].waiting else min(p.fragments for p in plans),
        seconds=dict(seconds),
        configurations=sum(plan.configurations for plan in plans),
        waiting={j: reason for plan in plans for j, reason in plan.waiting.items()},
        jobs={j: numbers for plan in plans for j, numbers in plan.jobs.items()},
    )
