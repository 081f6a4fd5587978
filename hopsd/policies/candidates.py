"""Who competes in a plan: queue, service window, sensitivity adjustment, and the idle GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hopsd.core.priority import idle_gpus, queue
from hopsd.core.shapes import Ints
from hopsd.core.window import runnable, sensitivities, sensitivity_adjustment, service_window
from hopsd.model.ids import JobId, job_order
from hopsd.model.job import Job, JobState
from hopsd.model.plan import PlanSettings, Snapshot
from hopsd.model.reason import Reason, ReasonCode


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


_NOT_QUEUED = {
    JobState.HELD: Reason(ReasonCode.HELD, "held by its user or an operator"),
    JobState.DEPENDENCY: Reason(ReasonCode.DEPENDENCY, "waits for a dependency or a begin time"),
    JobState.PROFILING: Reason(ReasonCode.PROFILING, "is being profiled"),
}


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
    waiting = _kept_out(snapshot, everyone.jobs, able, {job.id for job in (*window, *adjusted)})
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
    snapshot: Snapshot, everyone: Sequence[Job], able: Sequence[Job], inside: set[JobId]
) -> dict[JobId, Reason]:
    reasons = {
        job.id: _NOT_QUEUED[job.state]
        for job in sorted(snapshot.jobs, key=lambda job: job_order(job.id))
        if job.state in _NOT_QUEUED and not job.running
    }
    runs_somewhere = {job.id for job in able}
    for job in everyone:
        if job.id not in runs_somewhere:
            text = f"no mix of nodes it may use holds {min(job.reqs)} GPUs, even when all are idle"
            reasons[job.id] = Reason(ReasonCode.NO_CONFIGURATION, text)
        elif job.id not in inside:
            text = "the jobs ahead of it in the queue already ask for all GPUs of the cluster"
            reasons[job.id] = Reason(ReasonCode.OUTSIDE_WINDOW, text)
    return reasons
