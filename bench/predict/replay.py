"""Records what a predictor sees during a trace, and replays predictions over the recording, with
those of simpler predictors beside them. A recording serves every predictor, since predictors do not
change the trace, and its playouts serve every calibration.
"""

from __future__ import annotations

import gzip
import pickle
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

import numpy as np

from hopsd.model.arrays import Floats
from hopsd.model.ids import JobId, NodeName
from hopsd.model.plan import PlanSettings, PriorityName
from hopsd.model.scenario import Cluster, Workload
from hopsd.policies.registry import get
from hopsd.policies.timetable import Gain, Timetable
from hopsd.predict.arrivals import Arrivals
from hopsd.predict.calibration import Kind
from hopsd.predict.predictor import Prediction, Predictor
from hopsd.predict.situation import Situation
from hopsd.predict.traits import traits_of
from hopsd.sim.engine import MAX_PLAN_SECONDS, Simulation, SimulationSettings
from hopsd.sim.information.knowledge import KnowledgeSettings, Knows
from hopsd.sim.metrics import AllocationChange, JobOutcome
from hopsd.sim.prediction.watcher import Watcher
from hopsd.sim.study import result_of


@dataclass(frozen=True, slots=True)
class Case:
    """A trace under a policy, and what the policy knows."""

    name: str
    cluster: Cluster
    workload: Workload
    policy: str
    knows: Knows
    seed: int = 0

    @property
    def label(self) -> str:
        return f"{self.name}, {self.policy}, {self.knows.value}"


@dataclass(frozen=True, slots=True)
class Question:
    """A request to predict the start of ``job``, or, if None, all starts and ends."""

    situation: Situation
    job: JobId | None


@dataclass(frozen=True, slots=True)
class JobEvent:
    """The start or the end of a job at ``time``; its submission if ``kind`` is None."""

    job: JobId
    kind: Kind | None
    time: float


@dataclass(frozen=True, slots=True)
class Recording:
    """What a predictor sees during a case, in order, with outcomes and allocations of the jobs."""

    events: Sequence[Question | JobEvent]
    outcomes: Sequence[JobOutcome]
    changes: Sequence[AllocationChange]


@dataclass(slots=True)
class Playouts:
    """Playouts of each question in turn: ``times`` are seconds until each job's event (playouts,
    jobs), or (playouts, 1) for a single start. ``present_speed`` is the time at which a running job
    ends if nothing changes, by (job, at); ``backfill`` the same for starts by time limits.
    ``load`` is the demand for GPUs in percent of all, by time.
    """

    times: list[Floats] = field(default_factory=list)
    present_speed: dict[tuple[JobId, float], float] = field(default_factory=dict)
    backfill: dict[tuple[JobId, float], float] = field(default_factory=dict)
    load: dict[float, int] = field(default_factory=dict)

    def note(self, situation: Situation) -> None:
        """Note the load and the simpler predictions in a situation."""
        demand = (
            situation.rigid[situation.competes & (situation.gpus_held == 0.0)].sum()
            + situation.gpus_held.sum()
        )
        self.load[situation.now] = int(100 * demand / max(1, situation.gpus))
        for at, job in enumerate(situation.ids):
            if situation.gpus_held[at] > 0.0 and situation.rate[at] > 0.0:
                self.present_speed[job, situation.now] = (
                    situation.now + situation.remaining_work[at] / situation.rate[at]
                )
        for job, start in backfill_starts(situation).items():
            self.backfill[job, situation.now] = situation.now + start


@dataclass(frozen=True, slots=True)
class Replay:
    """The predictions for a case, including restarts, and its outcomes."""

    case: Case
    predictions: Sequence[Prediction]
    outcomes: Sequence[JobOutcome]
    playouts: Playouts
    seconds: float


@dataclass(slots=True)
class _CachedPredictor(Predictor):
    """A predictor that takes playouts from ``cache`` in turn, or makes and keeps them."""

    cache: Playouts = field(default_factory=Playouts)
    turn: int = 0

    def _play(self, situation: Situation, only: int | None) -> tuple[Floats, Floats]:
        if self.turn == len(self.cache.times):
            self.cache.note(situation)
            starts, ends = Predictor._play(self, situation, only)
            times = np.where(situation.gpus_held > 0.0, ends, starts)
            self.cache.times.append(times if only is None else times[:, only : only + 1])
        else:
            self._calls += 1
        times = self.cache.times[self.turn]
        self.turn += 1
        if only is not None:
            times = np.broadcast_to(times, (len(times), len(situation.ids)))
        return times, times


def backfill_starts(situation: Situation) -> dict[JobId, float]:
    """Slurm's estimates of starts (``squeue --start``): backfill with time limits, in seconds."""
    gains: dict[NodeName, list[Gain]] = {}
    for at, allocation in enumerate(situation.running):
        for node, gpus in allocation:
            gains.setdefault(node, []).append((max(1e-6, float(situation.allotment[at])), gpus))
    table = Timetable(0.0, situation.nodes, {n.name: n.idle for n in situation.nodes}, gains)
    starts = {}
    for at in sorted(range(len(situation.ids)), key=lambda i: float(situation.submit[i])):
        if situation.gpus_held[at] > 0.0 or not situation.competes[at]:
            continue
        place = table.soonest(
            int(situation.rigid[at]),
            dict.fromkeys(situation.rigid_by_type[at], float(situation.allotment[at])),
        )
        if place is not None:
            table.reserve(place)
            starts[situation.ids[at]] = place.start
    return starts


class _Submissions(Arrivals):
    """Records submissions as events."""

    def __init__(self, events: list[Question | JobEvent]) -> None:
        Arrivals.__init__(self)
        self.events = events

    def note(self, time: float) -> None:
        self.events.append(JobEvent(JobId(""), None, time))


class _Recorder(Predictor):
    """Predicts nothing, and records what it sees."""

    def __init__(self, case: Case) -> None:
        self.events: list[Question | JobEvent] = []
        Predictor.__init__(self, traits_of(case.policy), arrivals=_Submissions(self.events))

    def start_of(self, situation: Situation, job: JobId, *, keep: bool = True) -> None:
        del keep
        self.events.append(Question(situation, job))

    def all_of(self, situation: Situation) -> list[Prediction]:
        self.events.append(Question(situation, None))
        return []

    def resolve(self, job: JobId, kind: Kind, time: float) -> None:
        self.events.append(JobEvent(job, kind, time))


def record(case: Case) -> Recording:
    """Simulate the trace once, and record it."""
    plan = PlanSettings(
        policy=case.policy, time_limit_seconds=MAX_PLAN_SECONDS, effort=0, seed=case.seed
    )
    settings = SimulationSettings(
        plan=plan, knowledge=KnowledgeSettings(case.knows, seed=case.seed)
    )
    recorder = _Recorder(case)
    simulation = Simulation(
        case.cluster, case.workload, get(case.policy), settings, watcher=Watcher(recorder)
    )
    run = simulation.run()
    result = result_of(case.policy, run, case.cluster, case.workload)
    return Recording(recorder.events, result.outcomes, result.changes)


def load_or_record(case: Case, path: Path) -> Recording:
    """Load the recording of an earlier run, or make and keep it now."""
    if not path.exists():
        _write(path, record(case))
    with gzip.open(path) as file:
        record_of_case: Recording = pickle.load(file)  # noqa: S301  (written above)
    return record_of_case


def playouts_of(case: Case, recording: Recording, path: Path) -> Playouts:
    """Load the playouts of an earlier run, or make and keep them now."""
    if not path.exists():
        _write(path, replay(case, recording, Playouts()).playouts)
    with gzip.open(path) as file:
        playouts: Playouts = pickle.load(file)  # noqa: S301  (written above)
    return playouts


def _write(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".part")
    with gzip.open(partial, "wb", compresslevel=3) as file:
        pickle.dump(content, file)
    partial.replace(path)


def replay(case: Case, recording: Recording, playouts: Playouts) -> Replay:
    """Predict over a recording. ``playouts`` has those of all its questions, or is empty and
    filled here.
    """
    base_predictor = Predictor.for_policy(case.policy, PriorityName.LATENCY_RATIO, case.seed)
    predictor = _CachedPredictor(
        base_predictor.traits,
        base_predictor.seed,
        calibration=base_predictor.calibration,
        cache=playouts,
    )
    began = perf_counter()
    predictions: list[Prediction] = []
    for event in recording.events:
        if isinstance(event, Question):
            if event.job is not None:
                prediction = predictor.start_of(event.situation, event.job)
                predictions += [prediction] if prediction is not None else []
            else:
                predictions += predictor.all_of(event.situation)
        elif event.kind is None:
            predictor.arrivals.note(event.time)
        else:
            predictor.resolve(event.job, event.kind, event.time)
    return Replay(case, predictions, recording.outcomes, playouts, perf_counter() - began)


def true_of(replay_result: Replay) -> dict[tuple[JobId, Kind], float]:
    """The actual times of first starts and ends, by job and kind."""
    return {
        (o.id, kind): when
        for o in replay_result.outcomes
        for kind, when in ((Kind.START, o.first_start), (Kind.END, o.end))
        if when is not None
    }
