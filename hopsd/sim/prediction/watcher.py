"""Watches a simulation as the daemon would, and predicts starts and ends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hopsd.core.snapshot.build import build_snapshot
from hopsd.model.ids import JobId
from hopsd.model.plan import RoundInfo
from hopsd.predict.calibration import Kind
from hopsd.predict.capacity import capacity_of
from hopsd.predict.predictor import Prediction, Predictor
from hopsd.predict.situation import Situation, situation_of
from hopsd.round.decide import knowledge_now
from hopsd.round.observe import observe
from hopsd.round.settings import RoundSettings
from hopsd.round.window import RoundWindow
from hopsd.sim.cluster import VirtualCluster
from hopsd.sim.metrics import JobOutcome
from hopsd.sim.store import MemoryStore

COLUMNS = ("policy", "at", "id", "kind", "expected", "low", "high", "actual")


@dataclass(slots=True)
class Watcher:
    """Watches a simulation as the daemon would, and changes nothing in it.

    A start is predicted at the job's submission, before the plan of that moment, and after the
    first plan of each round until the job first starts; an end after the first plan of each round.
    """

    predictor: Predictor
    predictions: list[Prediction] = field(default_factory=list)
    _read_count: int = 0
    _known_jobs: set[JobId] = field(default_factory=set)
    _started_jobs: set[JobId] = field(default_factory=set)

    def arrivals(
        self,
        port: VirtualCluster,
        store: MemoryStore,
        settings: RoundSettings,
        window: RoundWindow,
    ) -> None:
        """Predict the starts of jobs that have arrived since the last call."""
        new = [job for job in port.unfinished_in_order if job not in self._known_jobs]
        if not new:
            return
        self._learn(port)
        situation = self._situation(port, store, settings, window)
        for job in new:
            self._known_jobs.add(job)
            self.predictor.arrivals.note(port.now)
            if job in situation.ids:
                self._add([self.predictor.start_of(situation, job)])

    def round(
        self,
        port: VirtualCluster,
        store: MemoryStore,
        settings: RoundSettings,
        window: RoundWindow,
    ) -> None:
        """Predict for all jobs, after a plan."""
        self._learn(port)
        situation = self._situation(port, store, settings, window)
        self._add(
            p
            for p in self.predictor.all_of(situation)
            if p.kind is Kind.END or p.job not in self._started_jobs
        )

    def _add(self, predictions: Iterable[Prediction | None]) -> None:
        self.predictions += [p for p in predictions if p is not None]

    def _learn(self, port: VirtualCluster) -> None:
        """Learn from changes since the last call, except those of this instant: not yet final."""
        unfinished_jobs = port.unfinished_jobs
        while (
            self._read_count < len(port.changes) and port.changes[self._read_count].time < port.now
        ):
            change = port.changes[self._read_count]
            self._read_count += 1
            if change.placement:  # includes jobs that had been stopped, as they were waiting, too
                self._started_jobs.add(change.job)
                self.predictor.resolve(change.job, Kind.START, change.time)
            elif not change.placement and change.job not in unfinished_jobs:
                self.predictor.resolve(change.job, Kind.END, change.time)

    def _situation(
        self,
        port: VirtualCluster,
        store: MemoryStore,
        settings: RoundSettings,
        window: RoundWindow,
    ) -> Situation:
        store = store.copy()
        store.report(port.samples_done())
        observation = observe(port, store, settings.requirements_max, port.glance())
        info = RoundInfo(first=False, seconds=window.end - port.now)
        build = build_snapshot(
            observation.reading,
            observation.records,
            observation.comments,
            knowledge_now(store, port.now, settings),
            info,
            settings.snapshot,
        )
        return situation_of(
            build.snapshot,
            build.expected,
            window.end,
            settings.seconds,
            capacity_of(observation.reading),
        )


def rows(
    policy: str, predictions: Sequence[Prediction], outcomes: Sequence[JobOutcome]
) -> list[tuple[object, ...]]:
    """Return rows of :data:`COLUMNS`; ``actual`` is None if the event never happened."""
    actual_times: Mapping[tuple[JobId, Kind], float | None] = {
        (o.id, kind): time
        for o in outcomes
        for kind, time in ((Kind.START, o.first_start), (Kind.END, o.end))
    }
    return [
        (
            policy,
            p.at,
            p.job,
            p.kind.value,
            p.expected,
            p.low,
            p.high,
            actual_times.get((p.job, p.kind)),
        )
        for p in predictions
    ]
