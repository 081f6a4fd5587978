"""Records runs that Slurm could not launch, for example because a node's prolog fails."""

from __future__ import annotations

from collections.abc import Iterable

import structlog

from hopsd.model.ids import JobId
from hopsd.model.reading import JobReading
from hopsd.model.step import OutcomeStatus, StepOutcome
from hopsd.store.history import History
from hopsd.store.past_runs import LAUNCH_FAILED

log = structlog.get_logger()

_HELD_TEXT = "Slurm could not launch it and holds it: repair its node, then scontrol release {}"
_REQUEUED_TEXT = "Slurm could not launch it on {} and requeued it"


class FailedStarts:
    """Records each failed launch as one event, by which health judges nodes
    (:func:`hopsd.store.past_runs.ended_runs`).
    """

    def __init__(self, store: History) -> None:
        self._store = store
        self._noted_runs: set[tuple[JobId, int]] = set()

    def look(self, jobs: Iterable[JobReading]) -> None:
        """Record failed launches that Slurm's state of waiting jobs shows."""
        present = set()
        for job in jobs:
            run = job.id, job.restarts
            present.add(run)
            # A requeue renews a job's submit time: an event after it is of the same failure.
            if job.launch_failed and run not in self._noted_runs:
                self._noted_runs.add(run)
                if not self._has_event(job):
                    self._note(job.id, _HELD_TEXT.format(job.id))
        self._noted_runs &= present

    def note_outcomes(self, outcomes: Iterable[StepOutcome]) -> None:
        """Record starts that Slurm undid within seconds: if it does not hold such jobs
        (nohold_on_prolog_fail), nothing else shows the failure.
        """
        for outcome in outcomes:
            if outcome.status is OutcomeStatus.FAILED and outcome.ran and not outcome.actual:
                self._note(outcome.step.job, _REQUEUED_TEXT.format(outcome.ran))

    def _has_event(self, job: JobReading) -> bool:
        """Whether the failure was already recorded, by an earlier hopsd or as an outcome."""
        events = self._store.events(job=job.id, limit=1000)
        return any(event.kind == LAUNCH_FAILED and event.at >= job.submit for event in events)

    def _note(self, job: JobId, text: str) -> None:
        log.warning(LAUNCH_FAILED, job=job, reason=text)
        self._store.add_event(LAUNCH_FAILED, text, job=job)
