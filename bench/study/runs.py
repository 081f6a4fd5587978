"""Plays cases once and keeps their figures as JSON."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path

from bench import kept as keeper
from bench.clock import cpu_seconds
from bench.study.cases import Case
from bench.study.works import work
from hopsd.model.plan import PlanSettings
from hopsd.policies.registry import get
from hopsd.sim.cluster import ClusterSettings
from hopsd.sim.engine import PLAN_SECONDS_MAX, SimulationSettings
from hopsd.sim.information.knowledge import KnowledgeSettings, Knows
from hopsd.sim.study import play

KEPT = Path("build/study")
Figures = dict[str, float]


def kept(case: Case) -> Figures | None:
    return keeper.read(_path(case))


def run(case: Case, folder: Path | None = None) -> Figures:
    """Play the case and keep its figures. ``folder``: Sia's ``sia-simulator``."""
    return keeper.kept(_path(case), partial(_play, case, folder))


def _path(case: Case) -> Path:
    return KEPT / f"{case.name}.json"


def _play(case: Case, folder: Path | None) -> Figures:
    cluster, workload = work(case, folder)
    given = case.conditions
    plan = PlanSettings(
        policy=case.policy, time_limit_seconds=PLAN_SECONDS_MAX, effort=0, seed=case.seed
    )
    knows = KnowledgeSettings(
        Knows.PERFECT if given.run_times else Knows.MEASURED, given.speed_error, seed=case.seed
    )
    restarts = ClusterSettings() if given.restart is None else ClusterSettings(given.restart)
    settings = SimulationSettings(given.round, plan=plan, knowledge=knows, cluster=restarts)
    began = cpu_seconds()
    result = play(case.policy, get(case.policy), cluster, workload, settings)
    if result.unfinished:
        raise SystemExit(f"{case.name}: jobs never ended: {result.unfinished}")
    return asdict(result.summary) | {"cpu_seconds": round(cpu_seconds() - began, 2)}
