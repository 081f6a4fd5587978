"""The store's interface beyond what a round needs: queries for people, events, requests."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import inf
from typing import Any, Protocol

from hopsd.model.history import JobRecord
from hopsd.model.ids import GpuType, JobId, UserName, WorkloadName
from hopsd.model.journal import (
    HOUR,
    Control,
    DiaryEntry,
    Event,
    GpuUse,
    PlanSummary,
    QueuePeriod,
    ReasonRecord,
    RecordedAllocation,
    ReleaseRequest,
)
from hopsd.model.knowledge import Bandwidth, PhaseRecord, Shortage, Theory
from hopsd.model.step import StepOutcome
from hopsd.store.port import PlanId, Store

DAY_SECONDS = 86400.0


class History(Store, Protocol):
    """What both stores implement. Lists may be empty."""

    def outcomes(self, plan: PlanId) -> tuple[StepOutcome, ...]:
        """The outcomes of a finished plan's steps, in the steps' order."""

    def plans(self, limit: int) -> tuple[PlanSummary, ...]:
        """The last ``limit`` plans, finished or not, the newest first."""

    def job(self, job: JobId) -> JobRecord | None:
        """The newest job with this id, ended or not."""

    def newest_jobs(self, jobs: Collection[JobId]) -> Mapping[JobId, JobRecord]:
        """The newest job of each known id, ended or not."""

    def ended_jobs(self, limit: int, user: UserName | None = None) -> tuple[JobRecord, ...]:
        """The last ``limit`` jobs that ended, of one user or of all, the newest first."""

    def queue_periods(
        self, since: float, until: float, seconds: float, user: UserName | None = None
    ) -> tuple[QueuePeriod, ...]:
        """Periods of ``seconds`` from ``since`` on, for one user's jobs or all; the last one begins
        before ``until``. A job that still waits at ``until`` counts as waiting until then.
        """

    def workloads_of(self, user: UserName) -> frozenset[WorkloadName]:
        """The workloads of this user's jobs, ended or not."""

    def raqlr(self, since: float) -> float | None:
        """Mean latency ratio (eq. 7) of jobs that ended at or after ``since``; None if none did.

        A job without an age counts with its run time: eq. 8's age is the run time without waiting.
        """

    def placements(self, job: JobId | None = None) -> tuple[RecordedAllocation, ...]:
        """Where a job ran, or where all jobs ran, ordered by start, job and submit time."""

    def reasons(self, job: JobId) -> tuple[ReasonRecord, ...]:
        """The reasons why a job waited, in order."""

    def job_history(self, job: JobId) -> dict[str, Any]:
        """A job's record, placements, reasons and events as JSON values."""

    def add_event(
        self, kind: str, text: str, *, job: JobId | None = None, time: float | None = None
    ) -> None:
        """Record an event; if ``time`` is None, at the store's current time."""

    def events(self, job: JobId | None = None, limit: int = 100) -> tuple[Event, ...]:
        """The last ``limit`` events, of one job or of all, the newest first."""

    def save_program(self, script: WorkloadName, program: str, time: float) -> None:
        """Record the training program that a job of this batch script reported at ``time``."""

    def add_phases(self, records: Iterable[PhaseRecord]) -> None:
        """Add processes' measurements; a later report of a process replaces its earlier one."""

    def phases(self, workload: WorkloadName, gpu_type: GpuType) -> tuple[PhaseRecord, ...]:
        """The newest records of a workload on a type, the newest first."""

    def save_theory(self, fits: Iterable[Theory]) -> None:
        """Replace earlier fits of the same workload and type."""

    def save_bandwidth(self, bandwidths: Iterable[Bandwidth]) -> None:
        """Replace earlier measurements of the same types."""

    def save_shortages(self, shortages: Iterable[Shortage]) -> None:
        """Record where memory was too small; a workload keeps its largest GPU count."""

    def control(self) -> Control:
        """Whether operators paused hops."""

    def set_paused(self, *, paused: bool, operator: str, time: float) -> None: ...

    def add_release_request(self, jobs: Sequence[JobId], uid: int, time: float) -> None:
        """Record a request to release ``jobs`` to plain Slurm; empty means all held jobs."""

    def mail_kinds(self, user: UserName) -> tuple[str, ...] | None:
        """The kinds of mail that a user chose; None if the user chose none."""

    def save_mail_kinds(self, user: UserName, kinds: Sequence[str] | None) -> None:
        """Save the kinds of mail that a user chose; None forgets the choice."""

    def release_requests(self) -> tuple[ReleaseRequest, ...]:
        """The requests not fulfilled yet, in order."""

    def end_release_requests(self, requests: Iterable[ReleaseRequest]) -> None:
        """Delete fulfilled requests."""

    def add_gpu_use(self, use: Iterable[GpuUse]) -> None:
        """Add ``use`` to the stored figures of the same hours and types."""

    def gpu_use(self, since: float, until: float, seconds: float = HOUR) -> tuple[GpuUse, ...]:
        """Sums per ``seconds``, a multiple of an hour; ``hour`` is the start of each period."""

    def predictions(self) -> dict[str, Any] | None:
        """The state that :meth:`save_predictions` saved last; None if there is none."""

    def save_predictions(self, state: Mapping[str, Any]) -> None:
        """Save what predictions have learnt, in place of the last saved state."""

    def save_diary(self, entries: Iterable[DiaryEntry]) -> None:
        """Insert entries; an existing job only gets its first plan."""

    def prune(self, now: float, retention_days: float) -> Mapping[str, int]:
        """Delete rows older than the retention; returns counts by kind. Open rows stay."""


def job_document(store: History, job: JobId) -> dict[str, Any]:
    """Build the answer of `History.job_history`, for the newest job with this number: earlier ones
    may be other users'.
    """
    record, placements = store.job(job), store.placements(job)
    since = -inf
    if record is not None and any(placement.submit != record.submit for placement in placements):
        placements = tuple(p for p in placements if p.submit == record.submit)
        since = record.submit
    return {
        "record": _record(record),
        "placements": [
            {
                "start": placement.start,
                "end": placement.end,
                "nodes": placement.allocation.as_dict(),
                "profiling": placement.profiling,
            }
            for placement in placements
        ],
        "reasons": [
            {
                "since": reason.since,
                "until": reason.until,
                "code": reason.reason.code.value,
                "reason": reason.reason.text,
            }
            for reason in store.reasons(job)
            if reason.since >= since
        ],
        "events": [
            {"time": event.at, "kind": event.kind, "text": event.text}
            for event in store.events(job)
            if event.at >= since
        ],
    }


def _record(job: JobRecord | None) -> dict[str, Any] | None:
    if job is None:
        return None
    return {
        "user": job.user,
        "name": job.name,
        "workload": job.workload,
        "state": job.state.value,
        "submit": job.submit,
        "end": job.end,
        "wait_seconds": job.wait_seconds,
        "run_seconds": job.run_seconds,
        "age_seconds": job.age_seconds,
        "latency_ratio": job.latency_ratio,
        "restarts": job.restarts,
        "samples_done": job.samples_done,
    }
