"""The interface between a round and its store. The simulator implements it in memory."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NewType, Protocol

from hopsd.model.history import JobRecord, ProfileRun
from hopsd.model.ids import JobId, WorkloadName
from hopsd.model.knowledge import Knowledge, ThroughputRecord
from hopsd.model.plan import Plan
from hopsd.model.step import Step, StepOutcome, Transition

PlanId = NewType("PlanId", int)


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """A plan and its round (``round_start`` to ``round_end``), recorded before it is applied.

    ``outcomes`` are those of its steps; empty until the plan has been applied.
    """

    round_start: float
    round_end: float
    first: bool
    made: float
    plan: Plan
    steps: tuple[Step, ...]
    outcomes: tuple[StepOutcome, ...] = ()


class Store(Protocol):
    """The store of a round. Every write is durable when the call returns.

    Raises (any call):
        StoreUnavailableError: PostgreSQL does not answer; nothing was written.
    """

    def jobs(self) -> Mapping[JobId, JobRecord]:
        """The jobs that have not ended, as last saved."""

    def save_jobs(self, records: Iterable[JobRecord]) -> None:
        """Insert or replace records. One with ``end`` set is final and leaves ``jobs()``."""

    def programs(self, scripts: Iterable[WorkloadName]) -> Mapping[WorkloadName, str]:
        """The program that the last job of each batch script reported, if any."""

    def knowledge(self) -> Knowledge: ...

    def add_throughput(self, records: Sequence[ThroughputRecord]) -> None: ...

    def profile_runs(self, since: float) -> tuple[ProfileRun, ...]:
        """Open runs, and those that began at or after ``since``, ordered by begin."""

    def save_profile_runs(self, runs: Iterable[ProfileRun]) -> None:
        """Insert or replace runs; a run is identified by its job and begin."""

    def begin_plan(self, record: PlanRecord) -> PlanId:
        """Record a plan before it is applied."""

    def finish_plan(self, plan: PlanId, outcomes: Sequence[StepOutcome], finished: float) -> None:
        """Record the outcomes of a plan after it was applied."""

    def transitions(self) -> tuple[Transition, ...]:
        """The steps of finished plans that are still under way, as last saved."""

    def save_transitions(self, transitions: Sequence[Transition]) -> None:
        """Replace all saved transitions."""

    def save_outcomes(self, outcomes: Sequence[StepOutcome]) -> None:
        """Save the outcomes of steps that were under way, in place of their jobs' newest ones."""

    def save_ended_by_signal(self, jobs: Collection[JobId]) -> None:
        """Mark jobs that ended in the grace of hops' own signal: their run times do not predict the
        next run of their workload.
        """

    def unfinished_plan(self) -> tuple[PlanId, PlanRecord] | None:
        """The newest plan that was begun but not finished: hopsd was stopped while applying it."""

    def last_plan(self) -> PlanRecord | None:
        """The newest finished plan, which shows the current round after a restart."""

    def last_outcomes(self, jobs: Collection[JobId]) -> Mapping[JobId, StepOutcome]:
        """The outcome of the newest step of each of ``jobs``, if it had one."""
