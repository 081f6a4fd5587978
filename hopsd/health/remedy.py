"""Choose hung and idle jobs to requeue, and jobs to shrink, if the site has turned that on.

Two independent signals must agree: the training's own report that it makes no step, and Slurm's
accounting that its processes use no processor time. A hang that spins on a processor is therefore
only reported. A job that uses some of its GPUs is shrunk if its trainings say so, and the GPUs'
driver sees no process of anybody on the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from hopsd.health.hung import HungTraining
from hopsd.health.idle import IdleJob, PartialUse
from hopsd.model.ids import JobId

NOTICE_SECONDS = 600.0
"""How long before a requeue or shrink the user of an idle job is warned, if the delay allows."""


@dataclass(frozen=True, slots=True)
class RemedyDelays:
    """Seconds after which a ``hung`` or ``idle`` job is requeued, and a job with ``unused`` GPUs is
    shrunk; 0 means never.
    """

    hung: float = 0.0
    idle: float = 0.0
    unused: float = 0.0


@dataclass(frozen=True, slots=True)
class Remedy:
    """A job to requeue in ``due_in`` seconds, 0 for now, because of ``evidence``, a sentence.
    ``gpus`` is the most GPUs that it gets from then on, None for as many as it asks.
    """

    job: JobId
    due_in: float
    evidence: str
    gpus: int | None = None


def remedies(
    jobs: Iterable[JobId],
    hung: Mapping[JobId, HungTraining],
    idle: Mapping[JobId, IdleJob],
    delays: RemedyDelays,
) -> tuple[Remedy, ...]:
    """Return the remedies, due or announced, for those of ``jobs`` that hang or are idle.

    ``idle`` are the jobs without processor time, which may include hung ones.
    """
    planned_remedies = []
    for job in jobs:
        idleness, training = idle.get(job), hung.get(job)
        if idleness is None:
            continue
        if training is not None and delays.hung:
            remaining = delays.hung - min(training.seconds, idleness.seconds)
            evidence = f"{training.text}; {idleness.text}"
        elif delays.idle:
            remaining = delays.idle - idleness.seconds
            evidence = idleness.text
        else:
            continue
        if remaining <= NOTICE_SECONDS:
            planned_remedies.append(Remedy(job, max(0.0, remaining), evidence))
    return tuple(planned_remedies)


def shrinks(
    reqs: Mapping[JobId, Sequence[int]], partly: Mapping[JobId, PartialUse], delay: float
) -> tuple[Remedy, ...]:
    """Return the remedies, due or announced, for jobs that hold unused GPUs and can run on fewer.

    ``reqs`` are the GPU counts that each job may run on; ``delay`` is in seconds, 0 for never.
    """
    planned_remedies = []
    for job, counts in reqs.items():
        use = partly.get(job)
        if use is None or not delay or not use.agreed_seconds:
            continue
        smaller = [count for count in counts if use.gpus_in_use <= count < use.gpus_held]
        remaining = delay - use.agreed_seconds
        if smaller and remaining <= NOTICE_SECONDS:
            planned_remedies.append(Remedy(job, max(0.0, remaining), use.text, min(smaller)))
    return tuple(planned_remedies)
