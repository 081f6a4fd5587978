"""The persistent store. Each call is one transaction; the SQL is in one file per table family."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, TypeAlias

from hopsd.model.history import JobRecord, ProfileRun
from hopsd.model.ids import GpuType, JobId, UserName, WorkloadName
from hopsd.model.job import ThroughputTable
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
from hopsd.model.knowledge import (
    Bandwidth,
    Knowledge,
    PhaseRecord,
    Shortage,
    Theory,
    ThroughputRecord,
)
from hopsd.model.step import StepOutcome, Transition
from hopsd.store import diary, figures, jobs, journal, past_runs, plans, profiling, throughput
from hopsd.store.connection import Connection, Database, postgres_breaker
from hopsd.store.history import DAY_SECONDS, job_document
from hopsd.store.leader import Leader
from hopsd.store.port import PlanId, PlanRecord

StoredHealth: TypeAlias = tuple[
    list[throughput.ReportedSpeed], list[past_runs.EndedRun], list[past_runs.StoredStay]
]


class PostgresStore:
    """A `History` in PostgreSQL; safe to use from several threads.

    ``tables`` are the operator's throughput tables. A call waits up to ``wait_seconds`` for
    PostgreSQL; the store recovers by itself after PostgreSQL restarts. If the connection is lost
    during a commit, it is unknown whether the write happened: every write may be repeated, and a
    plan whose end was being written counts as unfinished.

    With a ``leader``, PostgreSQL refuses the store's writes once another hopsd has led, except
    operators' requests to pause and to release jobs.

    Raises (any call):
        NotLeaderError: this process wrote after it lost the lead; nothing was written.
        StoreUnavailableError: PostgreSQL does not answer.
        StoreError: PostgreSQL refuses, for example because the migrations were not run.
    """

    def __init__(
        self,
        dsn: str,
        *,
        tables: Mapping[WorkloadName, Mapping[GpuType, ThroughputTable]] | None = None,
        leader: Leader | None = None,
        wait_seconds: float = 4.0,
    ) -> None:
        self._leader = leader
        self._tables = dict(tables or {})
        breaker = leader.breaker if leader is not None else postgres_breaker()
        self._database = Database(dsn, wait_seconds, breaker)
        self._open_jobs = jobs.OpenJobs()
        self._throughput = throughput.NewestRecords()
        self._records_lock = threading.RLock()

    def use_tables(self, tables: Mapping[WorkloadName, Mapping[GpuType, ThroughputTable]]) -> None:
        """Use the operator's tables of a new configuration."""
        self._tables = dict(tables)

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> PostgresStore:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @contextmanager
    def _write_transaction(self) -> Iterator[Connection]:
        """Open a transaction that commits only while this hopsd leads."""
        with self._database.transaction() as connection:
            if self._leader is not None:
                self._leader.fence(connection)
            yield connection

    def jobs(self) -> Mapping[JobId, JobRecord]:
        with self._records_lock:
            term = self._leader.term if self._leader is not None else None
            records = self._open_jobs.get(term)
            if records is None:
                with self._database.transaction() as connection:
                    records = jobs.open_jobs(connection)
                self._open_jobs.keep(term, records)
            return dict(records)

    def save_jobs(self, records: Iterable[JobRecord]) -> None:
        records = tuple(records)
        with self._records_lock, self._changing_records():
            term = self._leader.term if self._leader is not None else None
            with self._write_transaction() as connection:
                jobs.save(connection, records, self._open_jobs.written_records(term))
            self._open_jobs.update(records)

    @contextmanager
    def _changing_records(self) -> Iterator[None]:
        """Clear the cache after a failure, since it is unknown what was written."""
        try:
            yield
        except BaseException:
            self._open_jobs.forget()
            raise

    def ended_jobs(self, limit: int, user: UserName | None = None) -> tuple[JobRecord, ...]:
        with self._database.transaction() as connection:
            return jobs.ended(connection, limit, user)

    def queue_periods(
        self, since: float, until: float, seconds: float, user: UserName | None = None
    ) -> tuple[QueuePeriod, ...]:
        with self._database.transaction() as connection:
            return figures.queue_periods(connection, since, until, seconds, user)

    def workloads_of(self, user: UserName) -> frozenset[WorkloadName]:
        with self._database.transaction() as connection:
            return jobs.workloads_of(connection, user)

    def programs(self, scripts: Iterable[WorkloadName]) -> Mapping[WorkloadName, str]:
        with self._database.transaction() as connection:
            return jobs.programs(connection, scripts)

    def save_program(self, script: WorkloadName, program: str, time: float) -> None:
        with self._write_transaction() as connection:
            jobs.save_program(connection, script, program, time)

    def knowledge(self) -> Knowledge:
        with self._records_lock, self._database.transaction() as connection:
            runs = jobs.past_runs(connection)
            ended_by_signal = jobs.ended_by_signal(connection)
            failed_again = jobs.failed_again(connection)
            records = self._newest_records(connection)
            theory = throughput.theory(connection)
            bandwidth = throughput.bandwidth(connection)
            shortages = throughput.shortages(connection)
        return Knowledge(
            tables=self._tables,
            records=records,
            runs=runs,
            ended_by_signal=ended_by_signal,
            failed_again=failed_again,
            theory=theory,
            bandwidth=bandwidth,
            shortages=shortages,
        )

    def _newest_records(self, connection: Connection) -> tuple[ThroughputRecord, ...]:
        term = self._leader.term if self._leader is not None else None
        stamp = throughput.stamp(connection)
        records = self._throughput.get(term, stamp)
        if records is None:
            records = throughput.newest(connection)
            self._throughput.keep(term, stamp, records)
        return records

    def add_throughput(self, records: Sequence[ThroughputRecord]) -> None:
        with self._records_lock:
            try:
                with self._write_transaction() as connection:
                    before = throughput.stamp(connection)
                    throughput.add(connection, records)
                    after = throughput.stamp(connection)
            except BaseException:
                self._throughput.forget()
                raise
            self._throughput.add(before, after, records)

    def add_phases(self, records: Iterable[PhaseRecord]) -> None:
        with self._write_transaction() as connection:
            throughput.add_phases(connection, records)

    def phases(self, workload: WorkloadName, gpu_type: GpuType) -> tuple[PhaseRecord, ...]:
        with self._database.transaction() as connection:
            return throughput.phases(connection, workload, gpu_type)

    def save_theory(self, fits: Iterable[Theory]) -> None:
        with self._write_transaction() as connection:
            throughput.save_theory(connection, fits)

    def save_bandwidth(self, bandwidths: Iterable[Bandwidth]) -> None:
        with self._write_transaction() as connection:
            throughput.save_bandwidth(connection, bandwidths)

    def save_shortages(self, shortages: Iterable[Shortage]) -> None:
        with self._write_transaction() as connection:
            throughput.save_shortages(connection, shortages)

    def profile_runs(self, since: float) -> tuple[ProfileRun, ...]:
        with self._database.transaction() as connection:
            return profiling.runs(connection, since)

    def save_profile_runs(self, runs: Iterable[ProfileRun]) -> None:
        with self._write_transaction() as connection:
            profiling.save(connection, runs)

    def begin_plan(self, record: PlanRecord) -> PlanId:
        with self._write_transaction() as connection:
            return plans.begin(connection, record)

    def finish_plan(self, plan: PlanId, outcomes: Sequence[StepOutcome], finished: float) -> None:
        departures = [(o.step.job, o.vacated) for o in outcomes if o.vacated is not None]
        with self._records_lock:
            self._open_jobs.mark_vacated(job for job, _ in departures)
        with self._write_transaction() as connection:
            plans.finish(connection, plan, outcomes, finished)
            for job, time in departures:
                jobs.vacate(connection, job, time)

    def transitions(self) -> tuple[Transition, ...]:
        with self._database.transaction() as connection:
            return plans.transitions(connection)

    def save_transitions(self, transitions: Sequence[Transition]) -> None:
        with self._write_transaction() as connection:
            plans.save_transitions(connection, transitions)

    def save_outcomes(self, outcomes: Sequence[StepOutcome]) -> None:
        departures = [(o.step.job, o.vacated) for o in outcomes if o.vacated is not None]
        with self._records_lock:
            self._open_jobs.mark_vacated(job for job, _ in departures)
        with self._write_transaction() as connection:
            plans.save_outcomes(connection, outcomes)
            for job, time in departures:
                jobs.vacate(connection, job, time)

    def save_ended_by_signal(self, jobs_ended: Collection[JobId]) -> None:
        if jobs_ended:
            with self._write_transaction() as connection:
                jobs.save_ended_by_signal(connection, jobs_ended)

    def unfinished_plan(self) -> tuple[PlanId, PlanRecord] | None:
        with self._database.transaction() as connection:
            return plans.unfinished_plan(connection)

    def last_plan(self) -> PlanRecord | None:
        with self._database.transaction() as connection:
            return plans.last(connection)

    def last_outcomes(self, jobs: Collection[JobId]) -> dict[JobId, StepOutcome]:
        with self._database.transaction() as connection:
            return plans.last_outcomes(connection, jobs)

    def outcomes(self, plan: PlanId) -> tuple[StepOutcome, ...]:
        with self._database.transaction() as connection:
            return plans.outcomes(connection, plan)

    def plans(self, limit: int) -> tuple[PlanSummary, ...]:
        with self._database.transaction() as connection:
            return plans.newest(connection, limit)

    def job(self, job: JobId) -> JobRecord | None:
        with self._database.transaction() as connection:
            return jobs.newest(connection, [job]).get(job)

    def newest_jobs(self, job_ids: Collection[JobId]) -> Mapping[JobId, JobRecord]:
        with self._database.transaction() as connection:
            return jobs.newest(connection, job_ids)

    def raqlr(self, since: float) -> float | None:
        with self._database.transaction() as connection:
            return jobs.raqlr(connection, since)

    def placements(self, job: JobId | None = None) -> tuple[RecordedAllocation, ...]:
        with self._database.transaction() as connection:
            return jobs.placements(connection, job)

    def reasons(self, job: JobId) -> tuple[ReasonRecord, ...]:
        with self._database.transaction() as connection:
            return plans.reasons(connection, job)

    def job_history(self, job: JobId) -> dict[str, Any]:
        return job_document(self, job)

    def add_event(
        self, kind: str, text: str, *, job: JobId | None = None, time: float | None = None
    ) -> None:
        with self._write_transaction() as connection:
            journal.add_event(connection, kind, text, job, time)

    def events(self, job: JobId | None = None, limit: int = 100) -> tuple[Event, ...]:
        with self._database.transaction() as connection:
            return journal.events(connection, job, limit)

    def control(self) -> Control:
        with self._database.transaction() as connection:
            return journal.control(connection)

    def claim_cluster(self, name: str) -> None:
        """Make this the database of cluster ``name``, unless it is another cluster's.

        Raises:
            ConfigError: the database is another cluster's, where job numbers mean other jobs.
        """
        with self._database.transaction() as connection:
            journal.claim_cluster(connection, name)

    def set_paused(self, *, paused: bool, operator: str, time: float) -> None:
        with self._database.transaction() as connection:
            journal.set_paused(connection, paused, operator, time)

    def mail_kinds(self, user: UserName) -> tuple[str, ...] | None:
        with self._database.transaction() as connection:
            return journal.mail_kinds(connection, user)

    def save_mail_kinds(self, user: UserName, kinds: Sequence[str] | None) -> None:
        with self._database.transaction() as connection:
            journal.save_mail_kinds(connection, user, kinds)

    def add_release_request(self, jobs: Sequence[JobId], uid: int, time: float) -> None:
        with self._database.transaction() as connection:
            journal.add_release_request(connection, jobs, uid, time)

    def release_requests(self) -> tuple[ReleaseRequest, ...]:
        with self._database.transaction() as connection:
            return journal.release_requests(connection)

    def end_release_requests(self, requests: Iterable[ReleaseRequest]) -> None:
        with self._write_transaction() as connection:
            journal.end_release_requests(connection, requests)

    def add_gpu_use(self, use: Iterable[GpuUse]) -> None:
        with self._write_transaction() as connection:
            figures.add_gpu_use(connection, use)

    def gpu_use(self, since: float, until: float, seconds: float = HOUR) -> tuple[GpuUse, ...]:
        with self._database.transaction() as connection:
            return figures.gpu_use(connection, since, until, seconds)

    def figures(
        self,
        since: float,
        until: float,
        restart: float,
        user: UserName | None,
        *,
        shadow: bool = False,
    ) -> dict[str, Any]:
        """Compute sums over a period; see :func:`hopsd.store.figures.figures`."""
        with self._database.transaction() as connection:
            return figures.figures(connection, since, until, restart, user, shadow=shadow)

    def predictions(self) -> dict[str, Any] | None:
        with self._database.transaction() as connection:
            return journal.predictions(connection)

    def save_predictions(self, state: Mapping[str, Any]) -> None:
        with self._write_transaction() as connection:
            journal.save_predictions(connection, state)

    def save_diary(self, entries: Iterable[DiaryEntry]) -> None:
        with self._write_transaction() as connection:
            diary.save(connection, entries)

    def diary(
        self, since: float, until: float, limit: int, cursor: diary.JobKey | None = None
    ) -> list[dict[str, Any]]:
        """The newest diary jobs of a period before ``cursor``."""
        with self._database.transaction() as connection:
            return diary.jobs(connection, since, until, limit, cursor)

    def health(self, since: float) -> StoredHealth:
        """Read what trainings reported, how jobs ended, and where jobs were, from ``since`` on."""
        with self._database.transaction() as connection:
            return (
                throughput.reported_speeds(connection, since),
                past_runs.ended_runs(connection, since),
                past_runs.stays(connection, since),
            )

    def prune(self, now: float, retention_days: float) -> Mapping[str, int]:
        with self._records_lock:
            self._throughput.forget()
            with self._write_transaction() as connection:
                return journal.prune(connection, now - retention_days * DAY_SECONDS)
