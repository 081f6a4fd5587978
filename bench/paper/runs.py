"""Simulates cases once and saves what the page needs as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

from bench.clock import cpu_seconds
from bench.paper.experiments import Case
from bench.paper.search import scene
from bench.saved_runs import read, save
from hopsd.model.plan import Plan, PlanSettings, Snapshot
from hopsd.policies.protocol import Policy
from hopsd.policies.registry import get
from hopsd.sim.engine import MAX_PLAN_SECONDS, SimulationSettings
from hopsd.sim.facts import facts_of
from hopsd.sim.information.knowledge import KnowledgeSettings, Knows
from hopsd.sim.metrics import throughput_over_time
from hopsd.sim.presets import preset
from hopsd.sim.study import figures, play

ROUND_SECONDS = 360.0
SAMPLE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class SavedRun:
    """One run. Job lists are in the workload's order; ``throughput`` has a value per minute.

    ``plan_seconds`` is the CPU time of every round's first plan, including the solver's processes.
    """

    case: Case
    figures: dict[str, Any]
    age: list[float]
    jct: list[float]
    latency_ratio: list[float]
    ftf: list[float]
    throughput: list[float]
    plan_seconds: list[float]

    @property
    def long_ratios(self) -> list[float]:
        """Latency ratios of jobs that are expected to run for a round or more."""
        pairs = zip(self.age, self.latency_ratio, strict=True)
        return [ratio for age, ratio in pairs if age >= ROUND_SECONDS]


@dataclass(slots=True)
class _TimedPolicy:
    """A policy that records the CPU time of its first plans; wall time would measure the load."""

    policy: Policy
    seconds: list[float] = field(default_factory=list)

    def __getattr__(self, name: str) -> bool:
        """Forward the policy's attributes that say when it plans."""
        return cast(bool, getattr(self.policy, name))

    def __call__(self, snapshot: Snapshot, settings: PlanSettings) -> Plan:
        began = cpu_seconds()
        plan = self.policy(snapshot, settings)
        if snapshot.round.first:
            self.seconds.append(cpu_seconds() - began)
        return plan


def load_run(case: Case, folder: Path) -> SavedRun | None:
    """The saved run; None if there is none."""
    document = read(_path(case, folder))
    return None if document is None else SavedRun(**(document | {"case": case}))


def run(case: Case, folder: Path) -> SavedRun:
    """Simulate the case and save it."""
    round_seconds = ROUND_SECONDS
    if case.assumptions is None:
        scenario = preset(case.preset)
        cluster = scenario.cluster()
        workload = scenario.workload(case.seed, jobs=case.jobs, rate_per_hour=case.rate)
    else:
        round_seconds = case.assumptions.round_seconds
        cluster, workload = scene(case.assumptions, case.seed)
    plan = PlanSettings(
        gap=case.gap,
        policy=case.policy,
        seed=case.seed,
        time_limit_seconds=MAX_PLAN_SECONDS,
        effort=0,
    )
    knows = KnowledgeSettings(case.knows or Knows.PERFECT, seed=case.seed)
    settings = SimulationSettings(round_seconds, plan=plan, knowledge=knows)
    policy = _TimedPolicy(get(case.policy))
    result = play(case.policy, policy, cluster, workload, settings)
    facts = facts_of(cluster, workload)
    finished_jobs = [o for o in result.outcomes if o.jct is not None and o.ftf is not None]
    saved_run = SavedRun(
        case=case,
        figures=figures(result),
        age=[o.age for o in result.outcomes],
        jct=[o.jct for o in finished_jobs if o.jct is not None],
        latency_ratio=[o.latency_ratio for o in result.outcomes],
        ftf=[o.ftf for o in finished_jobs if o.ftf is not None],
        throughput=_sample(*throughput_over_time(result.changes, facts)),
        plan_seconds=[round(seconds, 3) for seconds in policy.seconds],
    )
    save(_path(case, folder), asdict(saved_run))
    return saved_run


def _path(case: Case, folder: Path) -> Path:
    return folder / f"{case.name}.json"


def _sample(times: Any, rates: Any) -> list[float]:
    """The value in force at each minute."""
    samples, index = [], 0
    for minute in range(int(times[-1] / SAMPLE_SECONDS) + 1):
        while index + 1 < len(times) and times[index + 1] <= minute * SAMPLE_SECONDS:
            index += 1
        samples.append(
            round(float(rates[index]), 1) if times[index] <= minute * SAMPLE_SECONDS else 0.0
        )
    return samples
