"""Simulates cases once and saves their figures as JSON."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path

from bench import saved_runs
from bench.clock import cpu_seconds
from bench.study.cases import Case
from bench.study.works import work
from hopsd.model.plan import PlanSettings
from hopsd.policies.registry import get
from hopsd.sim.cluster import ClusterSettings
from hopsd.sim.engine import MAX_PLAN_SECONDS, SimulationSettings
from hopsd.sim.information.knowledge import KnowledgeSettings, Knows
from hopsd.sim.study import play

RUNS_FOLDER = Path("build/study")
Figures = dict[str, float]


def load_figures(case: Case) -> Figures | None:
    return saved_runs.read(_path(case))


def run(case: Case, folder: Path | None = None) -> Figures:
    """Simulate the case unless it is saved. ``folder`` is Sia's ``sia-simulator``."""
    return saved_runs.load_or_run(_path(case), partial(_play, case, folder))


def _path(case: Case) -> Path:
    return RUNS_FOLDER / f"{case.name}.json"


def _play(case: Case, folder: Path | None) -> Figures:
    cluster, workload = work(case, folder)
    conditions = case.conditions
    plan = PlanSettings(
        policy=case.policy, time_limit_seconds=MAX_PLAN_SECONDS, effort=0, seed=case.seed
    )
    knows = KnowledgeSettings(
        Knows.PERFECT if conditions.run_times else Knows.MEASURED,
        conditions.speed_error,
        seed=case.seed,
    )
    restarts = (
        ClusterSettings() if conditions.restart is None else ClusterSettings(conditions.restart)
    )
    settings = SimulationSettings(conditions.round, plan=plan, knowledge=knows, cluster=restarts)
    began = cpu_seconds()
    result = play(case.policy, get(case.policy), cluster, workload, settings)
    if result.unfinished:
        raise SystemExit(f"{case.name}: jobs never ended: {result.unfinished}")
    return asdict(result.summary) | {"cpu_seconds": round(cpu_seconds() - began, 2)}
