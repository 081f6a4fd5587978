"""Plays a trace with predictions, and with what others would have predicted beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter

from hopsd.model.ids import JobId, NodeName
from hopsd.model.plan import PlanSettings, PriorityName
from hopsd.model.scenario import Cluster, Workload
from hopsd.policies.registry import get
from hopsd.policies.timetable import Gain, Timetable
from hopsd.predict.calibration import Kind
from hopsd.predict.predictor import Prediction, Predictor
from hopsd.predict.situation import Situation
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
        if not self.traits.reserves:
            return
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


def replay(case: Case) -> Replay:
    """Play it once."""
    made = Predictor.of_policy(case.policy, PriorityName.LATENCY_RATIO, case.seed)
    predictor = _Rivals(made.traits, made.seed, calibration=made.calibration)
    plan = PlanSettings(
        policy=case.policy, time_limit_seconds=PLAN_SECONDS_MAX, effort=0, seed=case.seed
    )
    settings = SimulationSettings(
        plan=plan, knowledge=KnowledgeSettings(case.knows, seed=case.seed)
    )
    watcher = Watcher(predictor)
    began = perf_counter()
    run = Simulation(case.cluster, case.workload, get(case.policy), settings, watcher=watcher).run()
    seconds = perf_counter() - began
    outcomes = result_of(case.policy, run, case.cluster, case.workload).outcomes
    return Replay(
        case,
        watcher.said,
        outcomes,
        predictor.present_speed,
        predictor.backfill,
        seconds,
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
