"""Makes predictions for a live cluster in a separate thread, from each round's report.

A tick only hands over its result. Sets of predictions are made one after the other, always from the
newest result, and each displayed prediction shows its age.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import structlog

from hopsd.core.queue.run_time import Expectation
from hopsd.model.allocation import Allocation
from hopsd.model.history import JobRecord
from hopsd.model.ids import JobId
from hopsd.model.job import Job
from hopsd.model.plan import PriorityName, Snapshot
from hopsd.model.rules import Limit
from hopsd.model.step import OutcomeStatus, StepKind, StepOutcome
from hopsd.predict.calibration import Kind
from hopsd.predict.capacity import NO_CHANGE, Capacity
from hopsd.predict.hypothetical import ID, JobRequest, with_job
from hopsd.predict.predictor import Prediction, Predictor
from hopsd.predict.situation import Situation, situation_of

log = structlog.get_logger()

Document = dict[str, Any]

ERROR_SECONDS = (60.0, 300.0, 600.0, 1800.0, 3600.0, 14400.0, 43200.0)
"""Upper bounds of the histogram of errors, in seconds."""

REPORT_SECONDS = 5.0
"""Interval at which a training reports its progress (hops_profiler's default)."""


@dataclass(frozen=True, slots=True)
class RoundReport:
    """A round's snapshot and outcomes, expected run times, the records of all jobs it saw, its end,
    the length of rounds, changes in capacity, the interval at which hopsd reads the cluster, and
    the limits on sessions, which the snapshot's policy does not plan.
    """

    snapshot: Snapshot
    outcomes: Sequence[StepOutcome]
    expected: Mapping[JobId, Expectation]
    records: Mapping[JobId, JobRecord]
    round_end: float
    round_seconds: float
    capacity: Capacity = NO_CHANGE
    refresh_seconds: float = 0.0
    session_limits: Sequence[Limit] = ()

    @property
    def margin_seconds(self) -> float:
        """Maximum age of hopsd's data on a training; no time is predicted more precisely."""
        return self.refresh_seconds + REPORT_SECONDS

    def situation_in(self, snapshot: Snapshot) -> Situation:
        """The situation in ``snapshot``, which is that of this report or derived from it."""
        snapshot = replace(snapshot, limits=(*snapshot.limits, *self.session_limits))
        return situation_of(
            snapshot, self.expected, self.round_end, self.round_seconds, self.capacity
        )


@dataclass(slots=True)
class Errors:
    """Errors of predictions by kind: counts by :data:`ERROR_SECONDS`, and sums of seconds."""

    counts: dict[Kind, list[int]] = field(
        default_factory=lambda: {kind: [0] * (len(ERROR_SECONDS) + 1) for kind in Kind}
    )
    seconds: dict[Kind, float] = field(default_factory=lambda: dict.fromkeys(Kind, 0.0))
    right: dict[Kind, int] = field(default_factory=lambda: dict.fromkeys(Kind, 0))

    def note(self, kind: Kind, error: float, *, right: bool) -> None:
        self.counts[kind][bisect_left(ERROR_SECONDS, abs(error))] += 1
        self.seconds[kind] += abs(error)
        self.right[kind] += right

    def as_dict(self) -> Document:
        return {
            kind.value: {
                "bounds": list(ERROR_SECONDS),
                "counts": list(self.counts[kind]),
                "seconds": self.seconds[kind],
                "within": self.right[kind],
            }
            for kind in Kind
        }


def apply_outcomes(snapshot: Snapshot, outcomes: Sequence[StepOutcome]) -> Snapshot:
    """The snapshot after a round's changes."""
    allocations = {job.id: job.running for job in snapshot.jobs}
    for outcome in outcomes:
        if outcome.step.job not in allocations or outcome.status is not OutcomeStatus.DONE:
            continue
        if outcome.step.kind in (StepKind.START, StepKind.MOVE):
            allocations[outcome.step.job] = outcome.actual or outcome.step.target
        elif outcome.step.kind is StepKind.PREEMPT:
            allocations[outcome.step.job] = Allocation()
    idle = {node.name: node.idle for node in snapshot.nodes}
    for job in snapshot.jobs:
        if allocations[job.id] != job.running:
            for sign, allocation in ((1, job.running), (-1, allocations[job.id])):
                for node, gpus in allocation:
                    if node in idle:
                        idle[node] += sign * gpus
    return replace(
        snapshot,
        nodes=tuple(replace(n, idle=max(0, min(n.gpus, idle[n.name]))) for n in snapshot.nodes),
        jobs=tuple(replace(job, running=allocations[job.id]) for job in snapshot.jobs),
    )


class Outlook:
    """Makes predictions in the background; :meth:`close` ends its thread."""

    def __init__(self, policy: str, priority: PriorityName) -> None:
        """The thread starts with the first offer."""
        self.policy = policy, priority
        self._predictor = Predictor.for_policy(policy, priority)
        self.is_restored = False
        """Whether :meth:`restore` was called; before, :meth:`state` lacks what was saved."""
        self._state: Document = self._predictor.as_dict()
        self._latest: dict[JobId, Prediction] = {}
        self._first: dict[tuple[JobId, Kind], Prediction] = {}
        self._present: dict[JobId, Job] = {}
        self._errors = Errors()
        self._next: RoundReport | None = None
        self._situation: Situation | None = None
        self._snapshot: tuple[RoundReport, Snapshot] | None = None
        self._seconds = 0.0
        self._lock = threading.Lock()
        self._wake = threading.Condition()
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def offer(self, result: RoundReport) -> None:
        """Queue a round's report; replaces one that is still waiting."""
        with self._wake:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="outlook", daemon=True)
                self._thread.start()
            self._next = result
            self._wake.notify()

    def close(self) -> None:
        with self._wake:
            self._is_closed = True
            self._wake.notify()
        if self._thread is not None:
            self._thread.join(timeout=5.0)

    def successor(self, policy: str, priority: PriorityName) -> Outlook:
        """Close this outlook; return one for another policy that continues from its state."""
        self.close()
        outlook = Outlook(policy, priority)
        if self.is_restored:
            outlook.restore(self._state)
        return outlook

    @property
    def document(self) -> Document | None:
        """When the newest set was made, how long this took, and the errors of earlier sets; None
        before the first set.
        """
        if self._situation is None:
            return None
        rate = self._predictor.arrivals.per_second(self._situation.now) * 3600.0
        return {
            "at": self._situation.now,
            "seconds": self._seconds,
            "arrivals_per_hour": rate,
            "arrivals_by_hour": self._predictor.arrivals.by_hour,
            "errors": self._errors.as_dict(),
        }

    def row(self, job: JobId) -> Document | None:
        """The prediction of a job, if there is one."""
        prediction = self._latest.get(job)
        return None if prediction is None else _row(prediction)

    def state(self) -> Document:
        """The state that survives a restart, as of the newest set. Never blocks."""
        return self._state

    def restore(self, state: Document | None) -> None:
        """Continue from an earlier :meth:`state`, once."""
        with self._lock:
            is_first, self.is_restored = not self.is_restored, True
            if state and is_first:
                self._predictor.restore(state)
                self._state = state

    def predict_start(self, request: JobRequest) -> Document | None:
        """Predict when such a job would start if it were submitted now; None if unknown."""
        if self._snapshot is None:
            return None
        result, snapshot = self._snapshot
        workloads = {job: record.workload for job, record in result.records.items()}
        snapshot = with_job(snapshot, request, workloads)
        situation = result.situation_in(snapshot)
        with self._lock:
            prediction = self._predictor.start_of(situation, ID, keep=False)
        return None if prediction is None else _row(prediction)

    def _work(self) -> None:
        while True:
            with self._wake:
                while self._next is None and not self._is_closed:
                    self._wake.wait()
                if self._is_closed:
                    return
                result, self._next = self._next, None
            try:
                if result is not None:
                    self.predict(result)
            except Exception:  # the next set may succeed; no tick depends on it
                log.exception("defect", where="predictions")

    def predict(self, result: RoundReport) -> None:
        """Learn from the outcomes, and make a new set of predictions."""
        began = time.perf_counter()
        snapshot = apply_outcomes(result.snapshot, result.outcomes)
        situation = result.situation_in(snapshot)
        with self._lock:
            self._learn(result, snapshot)
            self._predictor.margin_seconds = result.margin_seconds
            predictions = self._predictor.all_of(situation)
            self._state = self._predictor.as_dict()
        for prediction in predictions:
            self._first.setdefault((prediction.job, prediction.kind), prediction)
        self._latest = {prediction.job: prediction for prediction in predictions}
        self._snapshot, self._situation = (result, snapshot), situation
        self._seconds = time.perf_counter() - began

    def _learn(self, result: RoundReport, snapshot: Snapshot) -> None:
        """Resolve the events since the last set; a job without a record was cancelled."""
        present = {job.id: job for job in snapshot.jobs}
        for job, old in self._present.items():
            record = result.records.get(job)
            if job in present:
                if present[job].running and not old.running:
                    start = record.allocation_since if record is not None else None
                    self._resolve(job, Kind.START, start or snapshot.now)
            elif record is not None and record.end is not None and _is_completed(record):
                if not old.running:  # it has also started since
                    start = record.end - (record.run_seconds - old.run_seconds)
                    self._resolve(job, Kind.START, start)
                self._resolve(job, Kind.END, record.end)
            else:
                self._predictor.forget(job)
                self._first.pop((job, Kind.START), None)
                self._first.pop((job, Kind.END), None)
        if self._situation is None:  # jobs of the first set did not arrive just now
            self._predictor.arrivals.watch(snapshot.now)
        else:
            for _ in present.keys() - self._present.keys():
                self._predictor.arrivals.note(snapshot.now)
        self._present = present

    def _resolve(self, job: JobId, kind: Kind, time: float) -> None:
        self._predictor.resolve(job, kind, time)
        first = self._first.pop((job, kind), None)
        if first is not None:
            right = first.low <= time <= first.high
            self._errors.note(kind, time - first.expected, right=right)


def _is_completed(record: JobRecord) -> bool:
    return record.state.value in ("COMPLETED", "TIMEOUT")


def _row(prediction: Prediction) -> Document:
    """The prediction as a document; times are seconds since the epoch."""
    return {
        "kind": prediction.kind.value,
        "at": prediction.at,
        "expected": prediction.expected,
        "low": prediction.low,
        "high": prediction.high,
        "source": prediction.source.value,
        "progress": None
        if prediction.progress is None
        else float(np.round(prediction.progress, 4)),
    }
