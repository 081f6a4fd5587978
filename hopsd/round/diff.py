"""The steps that take the cluster from its current state to a plan."""

from __future__ import annotations

from collections.abc import Collection

from hopsd.model.allocation import Allocation
from hopsd.model.ids import JobId, job_order
from hopsd.model.plan import Plan
from hopsd.model.reading import Hold, JobReading, Reading, SlurmState
from hopsd.model.step import Step, StepKind


def diff(
    reading: Reading,
    plan: Plan,
    *,
    pinned_jobs: Collection[JobId],
    first: bool,
    released_jobs: Collection[JobId] = frozenset(),
) -> list[Step]:
    """Return the steps that take the cluster from ``reading`` to ``plan``.

    A first plan decides about every running job except ``pinned_jobs``, and preempts those that it
    does not place. A further plan only starts jobs. No step is made for ``released_jobs``. Steps
    are in the order of the plan's queue, then of job ids, so equal plans give equal steps.
    """
    queue = {job: position for position, job in enumerate((*plan.window, *plan.adjusted))}
    steps = []
    for job in reading.jobs:
        if job.id in released_jobs:
            continue
        target = plan.placements.get(job.id, Allocation())
        step = _step(job, target, may_vacate=first and job.id not in pinned_jobs)
        if step is not None:
            steps.append(step)
    return sorted(steps, key=lambda step: (queue.get(step.job, len(queue)), job_order(step.job)))


def _step(job: JobReading, target: Allocation, *, may_vacate: bool) -> Step | None:
    if job.state is SlurmState.RUNNING:
        if target == job.allocation or not (may_vacate or target):
            return None
        kind = StepKind.MOVE if target else StepKind.PREEMPT
        return Step(job.id, kind, current=job.allocation, target=target)
    if job.state is SlurmState.PENDING:
        if target:
            return Step(job.id, StepKind.START, target=target)
        if job.hold is Hold.NONE:
            return Step(job.id, StepKind.HOLD)
    return None
