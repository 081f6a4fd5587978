"""A full store without a database, for tests: plain dictionaries that end with the process."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count
from statistics import fmean
from typing import Any, TypeVar

from memory_knowledge import MemoryKnowledge

from hopsd.core.queue.history import closed_record
from hopsd.errors import StoreError
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
from hopsd.model.knowledge import Knowledge
from hopsd.model.plan import Plan
from hopsd.model.reason import Reason
from hopsd.model.step import OutcomeStatus, StepOutcome, Transition
from hopsd.store.history import DAY_SECONDS, job_document
from hopsd.store.past_runs import is_done, select_runs
from hopsd.store.placement import end_by, follow
from hopsd.store.port import PlanId, PlanRecord

Row = TypeVar("Row")

USES = ("hops", "plain", "fragmented", "idle", "down", "rack_fragmented")


@dataclass(slots=True)
class _StoredPlan:
    """A plan with its outcome; ``finished`` is None if it only began."""

    record: PlanRecord
    finished: float | None = None
    outcomes: tuple[StepOutcome, ...] = field(default_factory=tuple)


class MemoryStore(MemoryKnowledge):
    """A `History` that passes the same contract as that in PostgreSQL.

    ``tables`` are the operator's throughput, as in `Knowledge`.
    """

    def __init__(
        self, *, tables: Mapping[WorkloadName, Mapping[GpuType, ThroughputTable]] | None = None
    ) -> None:
        super().__init__()
        self._ended_by_signal: set[JobId] = set()
        self._transitions: tuple[Transition, ...] = ()
        self._tables = dict(tables or {})
        self._open: dict[JobId, JobRecord] = {}
        self._ended_records: dict[tuple[JobId, float], JobRecord] = {}
        self._placements: dict[tuple[JobId, float, float], RecordedAllocation] = {}
        self._last: dict[JobId, RecordedAllocation] = {}
        self._plans: dict[PlanId, _StoredPlan] = {}
        self._numbers = count(1)
        self._reasons: dict[JobId, list[ReasonRecord]] = {}
        self._waiting: dict[JobId, ReasonRecord] = {}
        self._programs: dict[WorkloadName, tuple[str, float]] = {}
        self._profile_runs: dict[tuple[JobId, float], ProfileRun] = {}
        self._events: list[Event] = []
        self._control = Control()
        self._predictions: dict[str, Any] | None = None
        self.diary: dict[tuple[JobId, float], DiaryEntry] = {}
        self._gpu_use: dict[tuple[float, GpuType], GpuUse] = {}
        self._release_requests: dict[int, ReleaseRequest] = {}
        self._now = 0.0
        self._mail_kinds: dict[UserName, tuple[str, ...]] = {}

    def programs(self, scripts: Iterable[WorkloadName]) -> Mapping[WorkloadName, str]:
        return {name: self._programs[name][0] for name in scripts if name in self._programs}

    def save_program(self, script: WorkloadName, program: str, time: float) -> None:
        self._programs[script] = program, time

    def jobs(self) -> Mapping[JobId, JobRecord]:
        return dict(self._open)

    def save_jobs(self, records: Iterable[JobRecord]) -> None:
        for record in records:
            self._now = max(self._now, record.seen)
            old = self._open.pop(record.id, None)
            if old is not None and old.submit != record.submit:
                self._ended_records[old.id, old.submit] = closed_record(old)
            self._ended_records.pop((record.id, record.submit), None)
            if record.end is None:
                self._open[record.id] = record
            else:
                self._ended_records[record.id, record.submit] = record
            for placement in follow(self._last.get(record.id), record):
                self._place(placement)

    def _place(self, placement: RecordedAllocation) -> None:
        self._placements[placement.job, placement.submit, placement.start] = placement
        if placement.end is None:
            self._last[placement.job] = placement
        else:
            self._last.pop(placement.job, None)

    def knowledge(self) -> Knowledge:
        return Knowledge(
            tables=self._tables,
            records=self._newest_throughput(),
            runs=select_runs(
                (
                    job
                    for job in self._ended_records.values()
                    if job.id not in self._ended_by_signal or is_done(job)
                ),
                self._open.values(),
            ),
            ended_by_signal=frozenset(
                (job.user, job.workload)
                for job in self._ended_records.values()
                if job.id in self._ended_by_signal and not is_done(job)
            ),
            failed_again=frozenset(
                (job.user, job.workload) for job in self._ended_records.values() if job.failed_again
            ),
            theory=tuple(fit for _, fit in sorted(self._theory.items())),
            bandwidth=tuple(entry for _, entry in sorted(self._bandwidth.items())),
            shortages=tuple(entry for _, entry in sorted(self._shortages.items())),
        )

    def profile_runs(self, since: float) -> tuple[ProfileRun, ...]:
        runs = sorted(self._profile_runs.values(), key=lambda run: (run.begin, run.job))
        return tuple(run for run in runs if not run.closed or run.begin >= since)

    def save_profile_runs(self, runs: Iterable[ProfileRun]) -> None:
        self._profile_runs.update({(run.job, run.begin): run for run in runs})

    def begin_plan(self, record: PlanRecord) -> PlanId:
        plan = PlanId(next(self._numbers))
        self._plans[plan] = _StoredPlan(record)
        self._note_reasons(record.plan, record.made)
        return plan

    def _note_reasons(self, plan: Plan, now: float) -> None:
        for job, open_reason in list(self._waiting.items()):
            plan_reason = plan.waiting.get(job)
            if plan_reason is None or plan_reason.code is not open_reason.reason.code:
                self._reasons[job][-1] = replace(open_reason, until=now)
                del self._waiting[job]
        for job, reason in plan.waiting.items():
            self._note_reason(job, reason, now)

    def _note_reason(self, job: JobId, reason: Reason, now: float) -> None:
        history = self._reasons.setdefault(job, [])
        if job in self._waiting:
            history[-1] = replace(history[-1], reason=reason)
        else:
            history.append(ReasonRecord(job, now, reason))
        self._waiting[job] = history[-1]

    def finish_plan(self, plan: PlanId, outcomes: Sequence[StepOutcome], finished: float) -> None:
        if plan not in self._plans:
            raise StoreError(f"plan {plan} is not in the store; only a begun plan can be finished")
        record = self._plans[plan]
        record.finished, record.outcomes = finished, tuple(outcomes)
        for outcome in outcomes:
            last = self._last.get(outcome.step.job)
            if outcome.vacated is not None and last and last.start < outcome.vacated:
                self._place(end_by(last, outcome.vacated))

    def transitions(self) -> tuple[Transition, ...]:
        return self._transitions

    def save_transitions(self, transitions: Sequence[Transition]) -> None:
        self._transitions = tuple(transitions)

    def save_ended_by_signal(self, jobs: Collection[JobId]) -> None:
        self._ended_by_signal |= set(jobs)

    def save_outcomes(self, outcomes: Sequence[StepOutcome]) -> None:
        for outcome in outcomes:
            for _, record in sorted(self._plans.items(), reverse=True):
                jobs = [o.step.job for o in record.outcomes]
                if outcome.step.job in jobs:
                    at = jobs.index(outcome.step.job)
                    if record.outcomes[at].status is OutcomeStatus.UNDER_WAY:
                        new_outcomes = (*record.outcomes[:at], outcome, *record.outcomes[at + 1 :])
                        record.outcomes = new_outcomes
                    break

    def unfinished_plan(self) -> tuple[PlanId, PlanRecord] | None:
        for plan, record in reversed(self._plans.items()):
            if record.finished is None:
                return plan, record.record
        return None

    def last_plan(self) -> PlanRecord | None:
        for record in reversed(self._plans.values()):
            if record.finished is not None:
                return replace(record.record, outcomes=record.outcomes)
        return None

    def last_outcomes(self, jobs: Collection[JobId]) -> dict[JobId, StepOutcome]:
        all_outcomes = [
            outcome for _, record in sorted(self._plans.items()) for outcome in record.outcomes
        ]
        return {outcome.step.job: outcome for outcome in all_outcomes if outcome.step.job in jobs}

    def outcomes(self, plan: PlanId) -> tuple[StepOutcome, ...]:
        return self._plans[plan].outcomes if plan in self._plans else ()

    def plans(self, most: int) -> tuple[PlanSummary, ...]:
        newest = [self._plans[number].record for number in sorted(self._plans, reverse=True)]
        return tuple(PlanSummary.from_plan(r.plan, r.made, first=r.first) for r in newest[:most])

    def job(self, job: JobId) -> JobRecord | None:
        ended_records = [record for (name, _), record in self._ended_records.items() if name == job]
        candidates = [*ended_records, *filter(None, [self._open.get(job)])]
        return max(candidates, key=lambda record: record.submit, default=None)

    def newest_jobs(self, jobs: Collection[JobId]) -> Mapping[JobId, JobRecord]:
        return {job: record for job in jobs if (record := self.job(job)) is not None}

    def ended_jobs(self, limit: int, user: UserName | None = None) -> tuple[JobRecord, ...]:
        records = [job for job in self._ended_records.values() if user in (None, job.user)]
        records.sort(key=lambda job: (-(job.end or 0.0), job.id, job.submit))
        return tuple(records[:limit])

    def queue_periods(
        self, since: float, until: float, seconds: float, user: UserName | None = None
    ) -> tuple[QueuePeriod, ...]:
        jobs = [*self._ended_records.values(), *self._open.values()]
        names = {job.id for job in jobs if job.user == user}
        reasons = [
            reason
            for job, all_ in self._reasons.items()
            if not user or job in names
            for reason in all_
        ]
        ended_jobs = [job for job in self._ended_records.values() if user in (None, job.user)]
        periods, start = [], since
        while start < until:
            end = min(start + seconds, until)
            waiting_seconds = sum(
                max(0.0, min(until if r.until is None else r.until, end) - max(r.since, start))
                for r in reasons
            )
            waits = [job.wait_seconds for job in ended_jobs if start <= (job.end or 0.0) < end]
            mean = fmean(waits) if waits else None
            periods.append(QueuePeriod(start, waiting_seconds / (end - start), len(waits), mean))
            start += seconds
        return tuple(periods)

    def workloads_of(self, user: UserName) -> frozenset[WorkloadName]:
        records = [*self._ended_records.values(), *self._open.values()]
        return frozenset(record.workload for record in records if record.user == user)

    def raqlr(self, since: float) -> float | None:
        jobs = [
            (job, job.run_seconds if job.age_seconds is None else job.age_seconds)
            for job in self._ended_records.values()
            if job.end is not None and job.end >= since
        ]
        ratios = [job.wait_seconds / age for job, age in jobs if age > 0]
        return fmean(ratios) if ratios else None

    def placements(self, job: JobId | None = None) -> tuple[RecordedAllocation, ...]:
        placements = [p for p in self._placements.values() if job is None or p.job == job]
        return tuple(sorted(placements, key=lambda p: (p.start, p.job, p.submit)))

    def reasons(self, job: JobId) -> tuple[ReasonRecord, ...]:
        return tuple(self._reasons.get(job, ()))

    def job_history(self, job: JobId) -> dict[str, Any]:
        return job_document(self, job)

    def add_event(
        self, kind: str, text: str, *, job: JobId | None = None, time: float | None = None
    ) -> None:
        self._events.append(Event(self._now if time is None else time, kind, text, job))

    def events(self, job: JobId | None = None, limit: int = 100) -> tuple[Event, ...]:
        events = [event for event in reversed(self._events) if job is None or event.job == job]
        return tuple(events[:limit])

    def health(self, since: float) -> tuple[list[object], list[object]]:
        """There are no reports, and no ends."""
        del since
        return [], []

    def control(self) -> Control:
        return self._control

    def set_paused(self, *, paused: bool, operator: str, time: float) -> None:
        self._control = Control(paused, operator, time)

    def mail_kinds(self, user: UserName) -> tuple[str, ...] | None:
        return self._mail_kinds.get(user)

    def save_mail_kinds(self, user: UserName, kinds: Sequence[str] | None) -> None:
        self._mail_kinds.pop(user, None)
        if kinds is not None:
            self._mail_kinds[user] = tuple(kinds)

    def add_release_request(self, jobs: Sequence[JobId], uid: int, time: float) -> None:
        number = next(self._numbers)
        self._release_requests[number] = ReleaseRequest(number, time, uid, tuple(jobs))

    def release_requests(self) -> tuple[ReleaseRequest, ...]:
        return tuple(self._release_requests.values())

    def end_release_requests(self, requests: Iterable[ReleaseRequest]) -> None:
        for request in requests:
            self._release_requests.pop(request.id, None)

    def add_gpu_use(self, use: Iterable[GpuUse]) -> None:
        self._gpu_use = sums_of_use(self._gpu_use.values(), use)

    def gpu_use(self, since: float, until: float, seconds: float = HOUR) -> tuple[GpuUse, ...]:
        stored_rows = [row for row in self._gpu_use.values() if since - HOUR < row.hour < until]
        sums = sums_of_use(
            [], (replace(row, hour=row.hour // seconds * seconds) for row in stored_rows)
        )
        return tuple(row for _, row in sorted(sums.items()))

    def predictions(self) -> dict[str, Any] | None:
        return self._predictions

    def save_predictions(self, state: Mapping[str, Any]) -> None:
        self._predictions = dict(state)

    def save_diary(self, entries: Iterable[DiaryEntry]) -> None:
        for entry in entries:
            old = self.diary.setdefault((entry.job, entry.submit), entry)
            if old.planned is None:
                planned_entry = replace(old, planned=entry.planned, nodes=entry.nodes)
                self.diary[entry.job, entry.submit] = planned_entry

    def prune(self, now: float, retention_days: float) -> Mapping[str, int]:
        before = now - retention_days * DAY_SECONDS
        events, self._events = self._events, [e for e in self._events if e.at >= before]
        return {
            "jobs": _drop(
                self._ended_records, lambda job: job.end is not None and job.end < before
            ),
            "diary": self._prune_diary(),
            "placements": _drop(self._placements, lambda p: p.end is not None and p.end < before),
            "rounds": self._prune_rounds(before),
            "reasons": self._prune_reasons(before),
            **self._prune_reports(before),
            "shortages": _drop(self._shortages, lambda shortage: shortage.at < before),
            "theory": _drop(self._theory, lambda fit: fit.at < before),
            "profile_runs": _drop(self._profile_runs, lambda r: r.closed and r.begin < before),
            "programs": _drop(self._programs, lambda program: program[1] < before),
            "gpu_use": _drop(self._gpu_use, lambda row: row.hour < before),
            "events": len(events) - len(self._events),
        }

    def _prune_diary(self) -> int:
        known_keys = {*self._ended_records, *((job.id, job.submit) for job in self._open.values())}
        forgotten_keys = [key for key in self.diary if key not in known_keys]
        for key in forgotten_keys:
            del self.diary[key]
        return len(forgotten_keys)

    def _prune_rounds(self, before: float) -> int:
        finished_plans = [
            plan for plan, record in self._plans.items() if record.finished is not None
        ]
        kept_rounds = {
            record.record.round_start
            for plan, record in self._plans.items()
            if record.finished is None or plan == finished_plans[-1]
        }
        old = {
            record.record.round_start
            for record in self._plans.values()
            if record.record.round_end < before
        } - kept_rounds
        _drop(self._plans, lambda record: record.record.round_start in old)
        return len(old)

    def _prune_reasons(self, before: float) -> int:
        count = 0
        for job, history in list(self._reasons.items()):
            recent = [r for r in history if r.until is None or r.until >= before]
            count += len(history) - len(recent)
            self._reasons[job] = recent
            if not recent:
                del self._reasons[job]
        return count


def sums_of_use(*rows_of_each: Iterable[GpuUse]) -> dict[tuple[float, GpuType], GpuUse]:
    """Sums by hour and type."""
    sums: dict[tuple[float, GpuType], GpuUse] = {}
    for row in chain(*rows_of_each):
        old = sums.get((row.hour, row.gpu_type), GpuUse(row.hour, row.gpu_type))
        sums[row.hour, row.gpu_type] = GpuUse(
            row.hour,
            row.gpu_type,
            *(getattr(old, kind) + getattr(row, kind) for kind in USES),
        )
    return sums


def _drop(rows: dict[Any, Row], old: Callable[[Row], bool]) -> int:
    """Delete the rows whose value is old; return how many there were."""
    keys = [key for key, row in rows.items() if old(row)]
    for key in keys:
        del rows[key]
    return len(keys)
