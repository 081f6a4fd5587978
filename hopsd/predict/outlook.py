"""Predictions for a live cluster: made in a thread of their own, from what each round left.

A tick only hands over its result. Sets of predictions are made one after the other, always from the
newest result, and what is shown says how old it is.
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
from hopsd.model.plan import PriorityName, Snapshot
from hopsd.model.step import OutcomeStatus, StepKind, StepOutcome
from hopsd.predict.calibration import Kind
from hopsd.predict.hypothetical import ID, Asked, with_job
from hopsd.predict.predictor import Prediction, Predictor
from hopsd.predict.situation import Situation, situation_of

log = structlog.get_logger()

Document = dict[str, Any]

ERROR_SECONDS = (60.0, 300.0, 600.0, 1800.0, 3600.0, 14400.0, 43200.0)
"""Upper bounds of the histogram of errors."""


@dataclass(frozen=True, slots=True)
class Left:
    """What a round left: its snapshot, what it changed, what is known of run times, the records of
    all jobs that it saw, when it ends and how long rounds are.
    """

    snapshot: Snapshot
    outcomes: Sequence[StepOutcome]
    expected: Mapping[JobId, Expectation]
    records: Mapping[JobId, JobRecord]
    round_end: float
    round_seconds: float


@dataclass(slots=True)
class Errors:
    """How far predictions were off, by kind: counts by :data:`ERROR_SECONDS`, and sums."""

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


def after(snapshot: Snapshot, outcomes: Sequence[StepOutcome]) -> Snapshot:
    """The snapshot with what a round changed."""
    held = {job.id: job.running for job in snapshot.jobs}
    for outcome in outcomes:
        if outcome.step.job not in held or outcome.status is not OutcomeStatus.DONE:
            continue
        if outcome.step.kind in (StepKind.START, StepKind.MOVE):
            held[outcome.step.job] = outcome.actual or outcome.step.target
        elif outcome.step.kind is StepKind.PREEMPT:
            held[outcome.step.job] = Allocation()
    idle = {node.name: node.idle for node in snapshot.nodes}
    for job in snapshot.jobs:
        if held[job.id] != job.running:
            for sign, allocation in ((1, job.running), (-1, held[job.id])):
                for node, gpus in allocation:
                    if node in idle:
                        idle[node] += sign * gpus
    return replace(
        snapshot,
        nodes=tuple(replace(n, idle=max(0, min(n.gpus, idle[n.name]))) for n in snapshot.nodes),
        jobs=tuple(replace(job, running=held[job.id]) for job in snapshot.jobs),
    )


class Outlook:
    """Makes predictions in the background; :meth:`close` ends its thread."""

    def __init__(self, policy: str, priority: PriorityName) -> None:
        """The thread starts with the first offer."""
        self.of = policy, priority
        self._predictor = Predictor.of_policy(policy, priority)
        self._restored = False
        self._state: Document = self._predictor.calibration.as_dict()
        self._latest: dict[JobId, Prediction] = {}
        self._first: dict[tuple[JobId, Kind], Prediction] = {}
        self._present: dict[JobId, bool] = {}
        self._errors = Errors()
        self._next: Left | None = None
        self._situation: Situation | None = None
        self._snapshot: tuple[Left, Snapshot] | None = None
        self._seconds = 0.0
        self._lock = threading.Lock()
        self._wake = threading.Condition()
        self._closed = False
        self._thread: threading.Thread | None = None

    def offer(self, left: Left) -> None:
        """What a round left; replaces an earlier one that was not begun."""
        with self._wake:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="outlook", daemon=True)
                self._thread.start()
            self._next = left
            self._wake.notify()

    def close(self) -> None:
        with self._wake:
            self._closed = True
            self._wake.notify()
        if self._thread is not None:
            self._thread.join(timeout=5.0)

    @property
    def document(self) -> Document | None:
        """When the newest set was made, in what time, and how far earlier ones were off; None:
        there is none yet.
        """
        if self._situation is None:
            return None
        rate = self._predictor.arrivals.per_second(self._situation.now) * 3600.0
        return {
            "at": self._situation.now,
            "seconds": self._seconds,
            "arrivals_per_hour": rate,
            "errors": self._errors.as_dict(),
        }

    def row(self, job: JobId) -> Document | None:
        """What is predicted of a job; None: nothing."""
        found = self._latest.get(job)
        return None if found is None else _row(found)

    def state(self) -> Document:
        """What is to survive a restart, as of the newest set; never waits for one under way."""
        return self._state

    def restore(self, kept: Document | None) -> None:
        """Go on from an earlier :meth:`state`, unless that was done before."""
        with self._lock:
            if kept and not self._restored:
                self._predictor.calibration.restore(kept)
                self._state = kept
            self._restored = True

    def when(self, asked: Asked) -> Document | None:
        """When such a job would start if it were submitted now; None: that is not known."""
        if self._snapshot is None:
            return None
        left, snapshot = self._snapshot
        workloads = {job: record.workload for job, record in left.records.items()}
        snapshot = with_job(snapshot, asked, workloads)
        of = situation_of(snapshot, left.expected, left.round_end, left.round_seconds)
        with self._lock:
            found = self._predictor.start_of(of, ID, keep=False)
        return None if found is None else _row(found)

    def _work(self) -> None:
        while True:
            with self._wake:
                while self._next is None and not self._closed:
                    self._wake.wait()
                if self._closed:
                    return
                left, self._next = self._next, None
            try:
                if left is not None:
                    self.predict(left)
            except Exception:  # the next set may succeed; no tick depends on it
                log.exception("defect", where="predictions")

    def predict(self, left: Left) -> None:
        """Learn from what has happened, and make a new set."""
        began = time.perf_counter()
        snapshot = after(left.snapshot, left.outcomes)
        of = situation_of(snapshot, left.expected, left.round_end, left.round_seconds)
        with self._lock:
            self._learn(left, snapshot)
            found = self._predictor.all_of(of)
            self._state = self._predictor.calibration.as_dict()
        for prediction in found:
            self._first.setdefault((prediction.job, prediction.kind), prediction)
        self._latest = {prediction.job: prediction for prediction in found}
        self._snapshot, self._situation = (left, snapshot), of
        self._seconds = time.perf_counter() - began

    def _learn(self, left: Left, snapshot: Snapshot) -> None:
        """What has come true since the last set. A job that is gone was cancelled."""
        now = {job.id: bool(job.running) for job in snapshot.jobs}
        for job, ran in self._present.items():
            record = left.records.get(job)
            if job in now:
                if now[job] and not ran:
                    since = record.allocation_since if record is not None else None
                    self._happened(job, Kind.START, since or snapshot.now)
            elif record is not None and record.end is not None and _completed(record):
                self._happened(job, Kind.END, record.end)
            else:
                self._predictor.forget(job)
                self._first.pop((job, Kind.START), None)
                self._first.pop((job, Kind.END), None)
        for _ in now.keys() - self._present.keys():
            self._predictor.arrivals.note(snapshot.now)
        self._present = now

    def _happened(self, job: JobId, kind: Kind, when: float) -> None:
        self._predictor.happened(job, kind, when)
        first = self._first.pop((job, kind), None)
        if first is not None:
            right = first.low <= when <= first.high
            self._errors.note(kind, when - first.expected, right=right)


def _completed(record: JobRecord) -> bool:
    return record.state.value in ("COMPLETED", "TIMEOUT")


def _row(found: Prediction) -> Document:
    """Times since the epoch."""
    return {
        "kind": found.kind.value,
        "at": found.at,
        "expected": found.expected,
        "low": found.low,
        "high": found.high,
        "source": found.source.value,
        "progress": None if found.progress is None else float(np.round(found.progress, 4)),
    }
