"""Runs simulations once and keeps what the page needs of each as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

from bench.clock import cpu_seconds
from bench.kept import keep, read
from bench.paper.experiments import Case
from bench.paper.search import scene
from hopsd.model.plan import Plan, PlanSettings, Snapshot
from hopsd.policies.protocol import Policy
from hopsd.policies.registry import get
from hopsd.sim.engine import PLAN_SECONDS_MAX, SimulationSettings
from hopsd.sim.facts import facts_of
from hopsd.sim.information.knowledge import KnowledgeSettings, Knows
from hopsd.sim.metrics import throughput_over_time
from hopsd.sim.presets import preset
from hopsd.sim.study import figures, play

ROUND_SECONDS = 360.0
SAMPLE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Kept:
    """One run. Job lists are in the workload's order; ``throughput`` every minute.

    ``plan_seconds``: processor time of every round's first plan, the solver's processes too.
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
        both = zip(self.age, self.latency_ratio, strict=True)
        return [ratio for age, ratio in both if age >= ROUND_SECONDS]


@dataclass(slots=True)
class _Timed:
    """A policy, and the processor time of its first plans: a wall clock would measure the load."""

    policy: Policy
    seconds: list[float] = field(default_factory=list)

    def __getattr__(self, name: str) -> bool:
        """The policy's own attributes: when it plans."""
        return cast(bool, getattr(self.policy, name))

    def __call__(self, snapshot: Snapshot, settings: PlanSettings) -> Plan:
        began = cpu_seconds()
        plan = self.policy(snapshot, settings)
        if snapshot.round.first:
            self.seconds.append(cpu_seconds() - began)
        return plan


def kept(case: Case, folder: Path) -> Kept | None:
    """What an earlier run left."""
    found = read(_path(case, folder))
    return None if found is None else Kept(**(found | {"case": case}))


def run(case: Case, folder: Path) -> Kept:
    """Play the case and keep it."""
    round_seconds = ROUND_SECONDS
    if case.assumed is None:
        made = preset(case.preset)
        cluster = made.cluster()
        workload = made.workload(case.seed, jobs=case.jobs, rate_per_hour=case.rate)
    else:
        round_seconds = case.assumed.round_seconds
        cluster, workload = scene(case.assumed, case.seed)
    plan = PlanSettings(
        gap=case.gap,
        policy=case.policy,
        seed=case.seed,
        time_limit_seconds=PLAN_SECONDS_MAX,
        effort=0,
    )
    knows = KnowledgeSettings(case.knows or Knows.PERFECT, seed=case.seed)
    settings = SimulationSettings(round_seconds, plan=plan, knowledge=knows)
    policy = _Timed(get(case.policy))
    result = play(case.policy, policy, cluster, workload, settings)
    facts = facts_of(cluster, workload)
    ended = [o for o in result.outcomes if o.jct is not None and o.ftf is not None]
    done = Kept(
        case=case,
        figures=figures(result),
        age=[o.age for o in result.outcomes],
        jct=[o.jct for o in ended if o.jct is not None],
        latency_ratio=[o.latency_ratio for o in result.outcomes],
        ftf=[o.ftf for o in ended if o.ftf is not None],
        throughput=_sampled(*throughput_over_time(result.changes, facts)),
        plan_seconds=[round(seconds, 3) for seconds in policy.seconds],
    )
    keep(_path(case, folder), asdict(done))
    return done


def _path(case: Case, folder: Path) -> Path:
    return folder / f"{case.name}.json"


def _sampled(times: Any, rates: Any) -> list[float]:
    """The value in force at each minute."""
    sampled, at = [], 0
    for minute in range(int(times[-1] / SAMPLE_SECONDS) + 1):
        while at + 1 < len(times) and times[at + 1] <= minute * SAMPLE_SECONDS:
            at += 1
        sampled.append(round(float(rates[at]), 1) if times[at] <= minute * SAMPLE_SECONDS else 0.0)
    return sampled
