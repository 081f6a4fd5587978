"""Who competes in a plan: queue, service window, sensitivity adjustment, and the idle GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hopsd.core.placement.pools import pools_of
from hopsd.core.queue.priority import Queue, idle_gpus, queue
from hopsd.core.queue.window import runnable, sensitivities, sensitivity_adjustment, service_window
from hopsd.model.arrays import Ints
from hopsd.model.ids import JobId
from hopsd.model.job import Job
from hopsd.model.plan import PlanSettings, Snapshot
from hopsd.model.reason import Reason
from hopsd.policies import reasons


@dataclass(frozen=True, slots=True)
class Candidates:
    """``queue``: every job the plan decides about; ``jobs``: the window's, then the adjusted.

    ``idle`` (nodes,): GPUs this plan may give. ``waiting``: the reason of every job that does
    not compete.
    """

    queue: tuple[Job, ...]
    window: tuple[Job, ...]
    adjusted: tuple[Job, ...]
    priority: Mapping[JobId, float]
    rho: Mapping[JobId, float | None]
    idle: Ints
    waiting: Mapping[JobId, Reason]

    @property
    def jobs(self) -> tuple[Job, ...]:
        return self.window + self.adjusted

    @property
    def sensitivity(self) -> list[float | None]:
        return [self.rho[job.id] for job in self.jobs]


def candidates(snapshot: Snapshot, settings: PlanSettings) -> Candidates:
    """The jobs of this plan. The order of ``snapshot.jobs`` changes nothing."""
    nodes = snapshot.nodes
    everyone = queue(snapshot, settings)
    rho = sensitivities(everyone.jobs, nodes)
    able = runnable(everyone.jobs, nodes)
    idle = idle_gpus(snapshot)
    size = service_window(able, sum(node.gpus for node in nodes))
    adjusted = [] if snapshot.round.first else sensitivity_adjustment(able, size, rho, sum(idle))
    window = able[:size]
    waiting = _kept_out(snapshot, everyone, able, window)
    for job in adjusted:
        del waiting[job.id]
    return Candidates(
        everyone.jobs,
        tuple(window),
        tuple(adjusted),
        everyone.priority,
        rho,
        np.array(idle, dtype=np.int64),
        waiting,
    )


def _kept_out(
    snapshot: Snapshot, everyone: Queue, able: Sequence[Job], window: Sequence[Job]
) -> dict[JobId, Reason]:
    """Reasons of the jobs in no queue, of those that can run nowhere, and of those behind."""
    pools = pools_of(snapshot.nodes)
    gpus = sum(pool.gpus for pool in pools.values())
    found = {
        job.id: reasons.NOT_QUEUED[job.state]
        for job in snapshot.jobs
        if job.state in reasons.NOT_QUEUED and not job.running
    }
    runs_somewhere = {job.id for job in able}
    found |= {
        job.id: reasons.nowhere(job, pools) for job in everyone.jobs if job.id not in runs_somewhere
    }
    size, asked = len(window), sum(min(job.reqs) for job in window)
    for position, job in enumerate(able[size:], size + 1):
        priority = everyone.priority[job.id]
        found[job.id] = reasons.outside_window(position, priority, size, asked, gpus)
    return found
