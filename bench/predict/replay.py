"""Records what a predictor sees during a trace; plays predictions over it, with what others would
have predicted beside them. A recording holds for every predictor, since none changes the trace.
"""

from __future__ import annotations

import gzip
import pickle
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

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
from hopsd.sim.engine import PLAN_SECONDS_MAX, Simulation, SimulationSettings
from hopsd.sim.information.knowledge import KnowledgeSettings, Knows
from hopsd.sim.metrics import JobOutcome
from hopsd.sim.prediction.watcher import Watcher
from hopsd.sim.study import result_of


@dataclass(frozen=True, slots=True)
class Case:
    """A trace under a policy with what it knows."""

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
    """The start of ``job`` is to be predicted; None: all starts and ends."""

    situation: Situation
    job: JobId | None


@dataclass(frozen=True, slots=True)
class Happened:
    """The start or the end of a job at ``time``; of no kind: its submission."""

    job: JobId
    kind: Kind | None
    time: float


@dataclass(frozen=True, slots=True)
class Recording:
    """What a predictor sees during a case, in order, and how its jobs fared."""

    events: Sequence[Question | Happened]
    outcomes: Sequence[JobOutcome]


@dataclass(frozen=True, slots=True)
class Replay:
    """``present_speed``: at which time a running job ends if nothing changes, by (job, at).
    ``backfill``: the same of starts by time limits. ``load``: GPUs wanted, percent of all, by time.
    """

    case: Case
    said: Sequence[Prediction]
    outcomes: Sequence[JobOutcome]
    present_speed: dict[tuple[JobId, float], float]
    backfill: dict[tuple[JobId, float], float]
    seconds: float
    load: dict[float, int]


@dataclass(slots=True)
class _Rivals(Predictor):
    """Notes what simpler predictions would be in the same situations."""

    present_speed: dict[tuple[JobId, float], float] = field(default_factory=dict)
    backfill: dict[tuple[JobId, float], float] = field(default_factory=dict)
    load: dict[float, int] = field(default_factory=dict)

    def start_of(self, of: Situation, job: JobId, *, keep: bool = True) -> Prediction | None:
        self._note(of)
        return Predictor.start_of(self, of, job, keep=keep)

    def all_of(self, of: Situation) -> list[Prediction]:
        self._note(of)
        return Predictor.all_of(self, of)

    def _note(self, of: Situation) -> None:
        wanted = of.rigid[of.competes & (of.gpus_held == 0.0)].sum() + of.gpus_held.sum()
        self.load[of.now] = int(100 * wanted / max(1, of.gpus))
        for at, job in enumerate(of.ids):
            if of.gpus_held[at] > 0.0 and of.rate[at] > 0.0:
                self.present_speed[job, of.now] = of.now + of.remaining_work[at] / of.rate[at]
        for job, start in backfilled(of).items():
            self.backfill[job, of.now] = of.now + start


def backfilled(of: Situation) -> dict[JobId, float]:
    """Slurm's own estimates: its backfill with time limits (``squeue --start``), in seconds."""
    gains: dict[NodeName, list[Gain]] = {}
    for at, allocation in enumerate(of.running):
        for node, gpus in allocation:
            gains.setdefault(node, []).append((max(1e-6, float(of.allotment[at])), gpus))
    table = Timetable(0.0, of.nodes, {n.name: n.idle for n in of.nodes}, gains)
    found = {}
    for at in sorted(range(len(of.ids)), key=lambda i: float(of.submit[i])):
        if of.gpus_held[at] > 0.0 or not of.competes[at]:
            continue
        place = table.soonest(
            int(of.rigid[at]), dict.fromkeys(of.rigid_by_type[at], float(of.allotment[at]))
        )
        if place is not None:
            table.reserve(place)
            found[of.ids[at]] = place.start
    return found


class _Submissions(Arrivals):
    """Records them."""

    def __init__(self, events: list[Question | Happened]) -> None:
        Arrivals.__init__(self)
        self.events = events

    def note(self, time: float) -> None:
        self.events.append(Happened(JobId(""), None, time))


class _Recorder(Predictor):
    """Predicts nothing, and records what it sees."""

    def __init__(self, case: Case) -> None:
        self.events: list[Question | Happened] = []
        Predictor.__init__(self, traits_of(case.policy), arrivals=_Submissions(self.events))

    def start_of(self, situation: Situation, job: JobId, *, keep: bool = True) -> None:
        del keep
        self.events.append(Question(situation, job))

    def all_of(self, situation: Situation) -> list[Prediction]:
        self.events.append(Question(situation, None))
        return []

    def resolve(self, job: JobId, kind: Kind, time: float) -> None:
        self.events.append(Happened(job, kind, time))


def record(case: Case) -> Recording:
    """Play the trace once."""
    plan = PlanSettings(
        policy=case.policy, time_limit_seconds=PLAN_SECONDS_MAX, effort=0, seed=case.seed
    )
    settings = SimulationSettings(
        plan=plan, knowledge=KnowledgeSettings(case.knows, seed=case.seed)
    )
    recorder = _Recorder(case)
    simulation = Simulation(
        case.cluster, case.workload, get(case.policy), settings, watcher=Watcher(recorder)
    )
    run = simulation.run()
    outcomes = result_of(case.policy, run, case.cluster, case.workload).outcomes
    return Recording(recorder.events, outcomes)


def recorded(case: Case, path: Path) -> Recording:
    """As kept by an earlier run, else played and kept now."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".part")
        with gzip.open(partial, "wb", compresslevel=3) as file:
            pickle.dump(record(case), file)
        partial.replace(path)
    with gzip.open(path) as file:
        recording: Recording = pickle.load(file)  # noqa: S301  (written above)
    return recording


def replay(case: Case, recording: Recording) -> Replay:
    """Predict over a recording."""
    made = Predictor.of_policy(case.policy, PriorityName.LATENCY_RATIO, case.seed)
    predictor = _Rivals(made.traits, made.seed, calibration=made.calibration)
    began = perf_counter()
    said: list[Prediction] = []
    running: set[JobId] = set()
    for event in recording.events:
        if isinstance(event, Question):
            if event.job is not None:
                one = predictor.start_of(event.situation, event.job)
                said += [one] if one is not None else []
            else:
                said += [
                    p
                    for p in predictor.all_of(event.situation)
                    if p.kind is Kind.END or p.job not in running
                ]
        elif event.kind is None:
            predictor.arrivals.note(event.time)
        else:
            predictor.resolve(event.job, event.kind, event.time)
            if event.kind is Kind.START:
                running.add(event.job)
    return Replay(
        case,
        said,
        recording.outcomes,
        predictor.present_speed,
        predictor.backfill,
        perf_counter() - began,
        predictor.load,
    )


def true_of(of: Replay) -> dict[tuple[JobId, Kind], float]:
    """What came true."""
    return {
        (o.id, kind): when
        for o in of.outcomes
        for kind, when in ((Kind.START, o.first_start), (Kind.END, o.end))
        if when is not None
    }
