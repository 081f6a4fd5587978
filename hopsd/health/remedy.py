"""Which hung and idle jobs to requeue, and which to shrink, where the site has turned that on.

Two signals must agree, from different witnesses: the training's own report that it makes no step,
and Slurm's accounting that its processes use no processor time. A hang that spins on a processor is
therefore only told. A job that uses some of its GPUs is shrunk where its trainings say so, and the
GPUs' driver sees no process of anybody on the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from hopsd.health.hung import HungTraining
from hopsd.health.idle import IdleJob, PartialUse
from hopsd.model.ids import JobId

NOTICE_SECONDS = 600.0
"""How long before an idle job is requeued or shrunk its user is told, if the delay is that long."""


@dataclass(frozen=True, slots=True)
class RemedyDelays:
    """Seconds without a sign of life after which a job is requeued, and with ``unused`` GPUs after
    which it is shrunk; 0: never.
    """

    hung: float = 0.0
    idle: float = 0.0
    unused: float = 0.0


@dataclass(frozen=True, slots=True)
class Remedy:
    """``due_in``: seconds until the job is to be requeued, 0: now. ``evidence``: in a sentence.
    ``gpus``: from then on it gets so many at most; None: as it asks.
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
    """The remedies for those of ``jobs`` that hang or are idle, due or announced.

    ``idle``: jobs without processor time, hung ones among them.
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
    """The remedies for jobs that hold GPUs for nothing and can do with fewer, due or announced.

    ``reqs``: GPUs that each may run on; ``delay``: seconds, 0: never.
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
