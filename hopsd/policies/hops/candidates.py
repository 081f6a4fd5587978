"""The jobs that compete in a plan: queue, service window, sensitivity adjustment, idle GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hopsd.core.placement.available import AvailableResources
from hopsd.core.placement.pools import pools_of
from hopsd.core.placement.remaining_limits import RemainingLimit, limits_after
from hopsd.core.queue.competing import available_resources, staying_jobs
from hopsd.core.queue.priority import Queue, queue
from hopsd.core.queue.service_window import (
    blocking_limits,
    runnable,
    sensitivities,
    sensitivity_adjustment,
    service_window,
)
from hopsd.model.ids import JobId
from hopsd.model.job import Job
from hopsd.model.plan import PlanSettings, Snapshot
from hopsd.model.reason import Reason
from hopsd.policies import reasons


@dataclass(frozen=True, slots=True)
class Candidates:
    """``queue``: every job that the plan decides about; ``jobs``: those of the window, then those
    added by the adjustment.

    ``available``: the resources that this plan may allocate. ``waiting``: the reason of every job
    that does not compete.
    """

    queue: tuple[Job, ...]
    window: tuple[Job, ...]
    adjusted_jobs: tuple[Job, ...]
    priority: Mapping[JobId, float]
    rho: Mapping[JobId, float | None]
    available: AvailableResources
    remaining_limits: tuple[RemainingLimit, ...]
    waiting: Mapping[JobId, Reason]

    @property
    def jobs(self) -> tuple[Job, ...]:
        return self.window + self.adjusted_jobs

    @property
    def sensitivity(self) -> list[float | None]:
        return [self.rho[job.id] for job in self.jobs]


def candidates(snapshot: Snapshot, settings: PlanSettings, reach: int = 1) -> Candidates:
    """Select the jobs that compete in this plan; the order of ``snapshot.jobs`` does not matter.

    ``reach``: the window's smallest requirements add up to this multiple of all GPUs (paper: 1).
    """
    nodes = snapshot.nodes
    everyone = queue(snapshot, settings)
    rho = sensitivities(everyone.jobs, nodes)
    runnable_jobs = runnable(everyone.jobs, nodes, settings.sigma)
    available, gpus = available_resources(snapshot), reach * sum(node.gpus for node in nodes)
    remaining_limits = limits_after(snapshot.limits, staying_jobs(snapshot))
    blocks = blocking_limits(runnable_jobs, gpus, remaining_limits)
    allowed_jobs = [job for job in runnable_jobs if job.id not in blocks]
    size, idle = service_window(allowed_jobs, gpus), int(available.gpus.sum())
    adjusted_jobs = (
        [] if snapshot.round.first else sensitivity_adjustment(allowed_jobs, size, rho, idle)
    )
    window = allowed_jobs[:size]
    waiting = _outside_window(snapshot, everyone, runnable_jobs, allowed_jobs, window, reach)
    waiting |= {
        job.id: reasons.over_limit(job, blocks[job.id]) for job in runnable_jobs if job.id in blocks
    }
    for job in adjusted_jobs:
        del waiting[job.id]
    return Candidates(
        everyone.jobs,
        tuple(window),
        tuple(adjusted_jobs),
        everyone.priority,
        rho,
        available,
        remaining_limits,
        waiting,
    )


def _outside_window(
    snapshot: Snapshot,
    everyone: Queue,
    runnable_jobs: Sequence[Job],
    allowed_jobs: Sequence[Job],
    window: Sequence[Job],
    reach: int,
) -> dict[JobId, Reason]:
    """Give reasons for jobs that are not queued, can run nowhere, or are outside the window."""
    pools = pools_of(snapshot.nodes)
    gpus = sum(pool.gpus for pool in pools.values())
    waiting = {
        job.id: reasons.NOT_QUEUED[job.state]
        for job in snapshot.jobs
        if job.state in reasons.NOT_QUEUED and not job.running
    }
    runs_somewhere = {job.id for job in runnable_jobs}
    waiting |= {
        job.id: reasons.nowhere(job, pools) for job in everyone.jobs if job.id not in runs_somewhere
    }
    size, requested_gpus = len(window), sum(min(job.reqs) for job in window)
    for position, job in enumerate(allowed_jobs[size:], size + 1):
        priority = everyone.priority[job.id]
        waiting[job.id] = reasons.outside_window(
            position, priority, size, requested_gpus, gpus, reach
        )
    return waiting
