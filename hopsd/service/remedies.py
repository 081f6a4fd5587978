"""Announces and carries out the remedies for hung and idle jobs that ``[health]`` enables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil

import structlog

from hopsd.config import HealthConfig
from hopsd.health.remedy import Remedy, RemedyDelays
from hopsd.model.ids import JobId
from hopsd.model.reading import JobReading, SlurmState
from hopsd.model.step import Step, StepKind
from hopsd.round.observation import Observation
from hopsd.store.history import History

log = structlog.get_logger()

MAX_REQUEUES = 3
"""The most requeues of a job: one that hangs in every run is its user's to fix, and only reported
from then on."""

ANNOUNCEMENT_EVENT, REQUEUE_EVENT, SHRUNK = "requeue_announced", "requeued", "shrunk"
_REQUEUED_BEFORE = "requeued_idle"
"""The kind of such events by earlier releases, which stay in the history."""

_MAX_EVENTS = 1000


def delays(config: HealthConfig) -> RemedyDelays:
    return RemedyDelays(
        hung=config.requeue_hung_minutes * 60.0,
        idle=config.requeue_idle_minutes * 60.0,
        unused=config.shrink_unused_minutes * 60.0,
    )


def requeueable(observation: Observation) -> tuple[JobReading, ...]:
    """Return the running jobs that hops may stop: neither the user (``preempt=no``,
    ``--no-requeue``) nor a step under way keeps them in place, a second start does no harm, and
    they are not sessions, which end by a rule of their own.
    """
    under_way = {transition.step.job for transition in observation.under_way}
    return tuple(
        job
        for job in observation.reading.jobs
        if job.state is SlurmState.RUNNING
        and job.requeue
        and not {"refuses", "resubmits"} & job.options.repeats
        and job.id not in under_way
        and (comment := observation.comments.get(job.id)) is not None
        and comment.preempt
        and not comment.interactive
    )


class Remedies:
    """Announces remedies to jobs' users, and makes steps of those that are due."""

    def __init__(self, store: History) -> None:
        self._store = store
        self._announced_jobs: frozenset[JobId] = frozenset()

    def steps(self, jobs: Iterable[JobReading], planned_remedies: Sequence[Remedy]) -> list[Step]:
        """Announce new remedies and return the steps of those that are due. A job that was stopped
        :data:`MAX_REQUEUES` times is left alone.
        """
        by_id = {job.id: job for job in jobs}
        steps = []
        for remedy in planned_remedies:
            if self._requeues(remedy.job) >= MAX_REQUEUES:
                continue
            if remedy.due_in > 0.0:
                self._announce(remedy)
                continue
            kind = REQUEUE_EVENT if remedy.gpus is None else SHRUNK
            log.warning(kind, job=remedy.job, reason=remedy.evidence)
            text = f"hops requeues it{_cap(remedy)}: {remedy.evidence}"
            self._store.add_event(kind, text, job=remedy.job)
            current = by_id[remedy.job].allocation
            steps.append(Step(remedy.job, StepKind.PREEMPT, current=current))
        self._announced_jobs = frozenset(remedy.job for remedy in planned_remedies)
        return steps

    def _announce(self, remedy: Remedy) -> None:
        if remedy.job in self._announced_jobs:
            return
        minutes = ceil(remedy.due_in / 60.0)
        unless = "it makes progress" if remedy.gpus is None else "it uses them"
        text = f"hops requeues it{_cap(remedy)} in {minutes} min unless {unless}: {remedy.evidence}"
        log.warning(ANNOUNCEMENT_EVENT, job=remedy.job, reason=text)
        self._store.add_event(ANNOUNCEMENT_EVENT, text, job=remedy.job)

    def _requeues(self, job: JobId) -> int:
        events = self._store.events(job=job, limit=_MAX_EVENTS)
        return sum(event.kind in (REQUEUE_EVENT, SHRUNK, _REQUEUED_BEFORE) for event in events)


def _cap(remedy: Remedy) -> str:
    return "" if remedy.gpus is None else f" for at most {remedy.gpus} GPUs"
