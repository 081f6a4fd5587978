"""A shadow's diary: what each job asked for, and when hops would have started it first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from hopsd.model.allocation import Allocation
from hopsd.model.ids import JobId
from hopsd.model.journal import DiaryEntry
from hopsd.model.step import StepKind
from hopsd.round.result import RoundResult
from hopsd.store.postgres import PostgresStore


@dataclass(slots=True)
class Diary:
    """Writes one entry per job, after the plans of a shadow."""

    store: PostgresStore
    _completeness: dict[tuple[JobId, float], bool] = field(default_factory=dict)

    def note(self, result: RoundResult) -> None:
        """Save entries of new jobs, and of jobs that this plan is the first to place."""
        entries = list(self._entries(result))
        self.store.save_diary(entries)
        present = {(job, record.submit) for job, record in result.observation.records.items()}
        self._completeness = {
            key: complete for key, complete in self._completeness.items() if key in present
        }
        self._completeness |= {(e.job, e.submit): e.planned is not None for e in entries}

    def _entries(self, result: RoundResult) -> Iterator[DiaryEntry]:
        allocations = {
            outcome.step.job: outcome.step.target
            for outcome in result.outcomes
            if outcome.step.kind is StepKind.START
        }
        for job in result.observation.reading.jobs:
            comment, record = (
                result.observation.comments.get(job.id),
                result.observation.records.get(job.id),
            )
            if comment is None or record is None:
                continue
            key, target = (job.id, record.submit), allocations.get(job.id)
            if key in self._completeness and (target is None or self._completeness[key]):
                continue
            yield DiaryEntry(
                job.id,
                record.submit,
                min(comment.reqs),
                job.options.gpu_type or "",
                job.time_limit_seconds,
                None if target is None else result.observation.reading.now,
                target or Allocation(),
            )
