"""Needless restarts in a plan: moves and stops from which no job gains."""

from __future__ import annotations

from hopsd.core.queue.competing import competes, idle_gpus
from hopsd.core.speed.throughput import configuration_throughput
from hopsd.model.ids import JobId
from hopsd.model.plan import Plan, Snapshot


def needless_restarts(snapshot: Snapshot, plan: Plan) -> frozenset[JobId]:
    """Return the running jobs that a first plan moves or stops needlessly.

    No other job gets their GPUs, and the move makes them no faster.
    """
    free = dict(zip((node.name for node in snapshot.nodes), idle_gpus(snapshot), strict=True))
    for allocation in plan.placements.values():
        for name, gpus in allocation:
            free[name] = free.get(name, 0) - gpus
    types = {node.name: node.gpu_type for node in snapshot.nodes}
    restarts = set()
    for job in snapshot.jobs:
        placement = plan.placements.get(job.id)
        if (
            not job.running
            or placement == job.running
            or not competes(job, first=snapshot.round.first)
        ):
            continue
        is_unclaimed = all(
            free.get(name, 0) + (placement.on(name) if placement else 0) >= gpus
            for name, gpus in job.running
        )
        faster = placement is not None and configuration_throughput(
            job, placement, types
        ) > configuration_throughput(job, job.running, types)
        if is_unclaimed and not faster:
            restarts.add(job.id)
    return frozenset(restarts)
