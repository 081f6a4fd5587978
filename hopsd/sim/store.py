"""The simulator's store, in memory."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hopsd.model.history import JobRecord, ProfileRun
from hopsd.model.ids import JobId, WorkloadName
from hopsd.model.knowledge import Knowledge, ThroughputRecord
from hopsd.model.step import StepOutcome, Transition
from hopsd.store.past_runs import select_runs
from hopsd.store.port import PlanId, PlanRecord


@dataclass(slots=True)
class MemoryStore:
    """Implements :class:`hopsd.store.port.Store`; keeps only the newest plan, and ended jobs only
    if run times are predicted from ``past_runs``. ``restart_seconds``: as jobs' reports will show
    them.
    """

    known_tables: Knowledge
    restart_seconds: Mapping[JobId, float] = field(default_factory=dict)
    past_runs: bool = False
    _ended_records: list[JobRecord] = field(default_factory=list)
    _jobs: dict[JobId, JobRecord] = field(default_factory=dict)
    _open: tuple[PlanId, PlanRecord] | None = None
    _last: PlanRecord | None = None
    _plans: int = 0

    def copy(self) -> MemoryStore:
        """Return a copy that can be changed for a trial."""
        return replace(self, _ended_records=list(self._ended_records), _jobs=dict(self._jobs))

    def jobs(self) -> Mapping[JobId, JobRecord]:
        return self._jobs

    def save_jobs(self, records: Iterable[JobRecord]) -> None:
        jobs = self._jobs | {record.id: record for record in records}
        if self.past_runs:
            self._ended_records += [record for record in jobs.values() if record.end is not None]
        self._jobs = {job: record for job, record in jobs.items() if record.end is None}

    def report(self, samples_done: Mapping[JobId, float]) -> None:
        """Record the samples that running jobs report, and the time of their restarts."""
        for job, samples in samples_done.items():
            record = self._jobs.get(job)
            if record is not None and record.samples_done != samples:
                self._jobs[job] = replace(
                    record,
                    samples_done=samples,
                    restart_seconds=self.restart_seconds.get(job, 0.0),
                )

    def programs(self, scripts: Iterable[WorkloadName]) -> Mapping[WorkloadName, str]:  # noqa: ARG002
        """Return nothing: virtual jobs name their workload."""
        return {}

    def knowledge(self) -> Knowledge:
        if not self.past_runs:
            return self.known_tables
        return replace(
            self.known_tables, runs=select_runs(self._ended_records, self._jobs.values())
        )

    def add_throughput(self, records: Sequence[ThroughputRecord]) -> None:
        self.known_tables = replace(
            self.known_tables, records=(*self.known_tables.records, *records)
        )

    def profile_runs(self, since: float) -> tuple[ProfileRun, ...]:  # noqa: ARG002
        """Return nothing: the speeds of virtual jobs are known."""
        return ()

    def save_profile_runs(self, runs: Iterable[ProfileRun]) -> None:
        """Do nothing: there are no profile runs."""

    def begin_plan(self, record: PlanRecord) -> PlanId:
        self._plans += 1
        self._open = (PlanId(self._plans), record)
        return self._open[0]

    def finish_plan(self, plan: PlanId, outcomes: Sequence[StepOutcome], finished: float) -> None:  # noqa: ARG002
        if self._open is not None and self._open[0] == plan:
            self._last, self._open = replace(self._open[1], outcomes=tuple(outcomes)), None

    def unfinished_plan(self) -> tuple[PlanId, PlanRecord] | None:
        return self._open

    def last_plan(self) -> PlanRecord | None:
        return self._last

    def transitions(self) -> tuple[Transition, ...]:
        """Return nothing: virtual steps are over at once."""
        return ()

    def save_transitions(self, transitions: Sequence[Transition]) -> None:
        """Do nothing: virtual steps are over at once."""

    def save_outcomes(self, outcomes: Sequence[StepOutcome]) -> None:
        """Do nothing: `last_outcomes` needs none."""

    def save_ended_by_signal(self, jobs: Collection[JobId]) -> None:
        """Do nothing: no virtual job is ended by a signal."""

    def last_outcomes(self, jobs: Collection[JobId]) -> Mapping[JobId, StepOutcome]:  # noqa: ARG002
        return {}  # used for failed jobs, and no virtual job ends as failed
