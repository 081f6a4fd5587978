"""Which hung and idle jobs to requeue, where the site has turned that on.

Two signals must agree, from different witnesses: the training's own report that it makes no step,
and Slurm's accounting that its processes use no processor time. A hang that spins on a processor is
therefore only told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hopsd.health.hung import HungTraining
from hopsd.health.idle import IdleJob
from hopsd.model.ids import JobId

NOTICE_SECONDS = 600.0
"""How long before an idle job is requeued its user is told, if the delay is that long."""


@dataclass(frozen=True, slots=True)
class RemedyDelays:
    """Seconds without a sign of life after which a job is requeued; 0: never."""

    hung: float = 0.0
    idle: float = 0.0


@dataclass(frozen=True, slots=True)
class Remedy:
    """``due_in``: seconds until the job is to be requeued, 0: now. ``evidence``: in a sentence."""

    job: JobId
    due_in: float
    evidence: str


def remedies(
    jobs: Iterable[JobId],
    hung: Mapping[JobId, HungTraining],
    idle: Mapping[JobId, IdleJob],
    delays: RemedyDelays,
) -> tuple[Remedy, ...]:
    """The remedies for those of ``jobs`` that hang or are idle, due or announced.

    ``idle``: jobs without processor time, hung ones among them.
    """
    planned = []
    for job in jobs:
        nothing, training = idle.get(job), hung.get(job)
        if nothing is None:
            continue
        if training is not None and delays.hung:
            remaining = delays.hung - min(training.seconds, nothing.seconds)
            evidence = f"{training.text}; {nothing.text}"
        elif delays.idle:
            remaining = delays.idle - nothing.seconds
            evidence = nothing.text
        else:
            continue
        if remaining <= NOTICE_SECONDS:
            planned.append(Remedy(job, max(0.0, remaining), evidence))
    return tuple(planned)
