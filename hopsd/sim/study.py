"""Runs one workload under several policies, and writes a study's files (docs/formats.md)."""

from __future__ import annotations

import csv
import json
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hopsd.model.scenario import Cluster, Workload
from hopsd.policies.protocol import Policy
from hopsd.predict.predictor import Prediction, Predictor
from hopsd.sim.cluster import Failure, lost_gpus
from hopsd.sim.engine import PlanMade, Progress, Run, Simulation, SimulationSettings
from hopsd.sim.facts import facts_of
from hopsd.sim.metrics import (
    AllocationChange,
    JobOutcome,
    RoundState,
    Summary,
    job_outcomes,
    percentile,
    round_states,
    summarise,
)
from hopsd.sim.prediction.watcher import COLUMNS as PREDICTION_COLUMNS
from hopsd.sim.prediction.watcher import Watcher
from hopsd.sim.prediction.watcher import rows as prediction_rows

JOB_COLUMNS = ("policy", "id", "submit", "first_start", "end", "wait", "age", "latency_ratio",
               "ftf", "restarts")  # fmt: skip
ROUND_COLUMNS = ("policy", "time", "queued", "running", "idle", "fragments", "throughput",
                 "solve_seconds", "gap")  # fmt: skip


@dataclass(frozen=True, slots=True)
class PolicyResult:
    """One policy's run with its figures. ``first_plans``: the first plan of each round;
    ``predictions``: the predictions made during the run.
    """

    policy: str
    changes: tuple[AllocationChange, ...]
    outcomes: tuple[JobOutcome, ...]
    rounds: tuple[RoundState, ...]
    first_plans: tuple[PlanMade, ...]
    plans: int
    summary: Summary
    wall_seconds: float
    predictions: tuple[Prediction, ...] = ()

    @property
    def unfinished(self) -> list[str]:
        return [outcome.id for outcome in self.outcomes if outcome.end is None]


def play(
    name: str,
    policy: Policy,
    cluster: Cluster,
    workload: Workload,
    settings: SimulationSettings,
    failures: Sequence[Failure] = (),
    progress: Progress | None = None,
    *,
    predict: bool = False,
) -> PolicyResult:
    """Run one policy and compute its figures from the timeline alone.

    ``predict``: also predict starts and ends, as the daemon would; nothing else changes.
    """
    watcher = watcher_of(name, settings) if predict else None
    run = Simulation(cluster, workload, policy, settings, failures, progress, watcher=watcher).run()
    result = result_of(name, run, cluster, workload, failures)
    return result if watcher is None else replace(result, predictions=tuple(watcher.predictions))


def watcher_of(name: str, settings: SimulationSettings) -> Watcher:
    """Make a watcher that predicts what the policy called ``name`` does."""
    return Watcher(Predictor.for_policy(name, settings.plan.priority, settings.plan.seed))


def result_of(
    name: str, run: Run, cluster: Cluster, workload: Workload, failures: Sequence[Failure] = ()
) -> PolicyResult:
    """Compute the figures of one policy's run."""
    facts, gpus = facts_of(cluster, workload), cluster.gpus
    outcomes = job_outcomes(run.changes, facts, gpus, run.unfinished)
    lost_at = partial(lost_gpus, cluster, failures)
    states = round_states(run.changes, facts, gpus, run.rounds, lost_at, run.unfinished)
    return PolicyResult(
        policy=name,
        changes=run.changes,
        outcomes=tuple(outcomes),
        rounds=tuple(states),
        first_plans=_first_plans(run),
        plans=len(run.plans),
        summary=summarise(outcomes, states, gpus, run.needless_restarts),
        wall_seconds=run.wall_seconds,
    )


def _first_plans(run: Run) -> tuple[PlanMade, ...]:
    """Return each round's first plan; if there was none, an empty plan that took no time."""
    first: dict[float, PlanMade] = {}
    for plan_made in run.plans:
        first.setdefault(run.rounds[bisect_right(run.rounds, plan_made.time) - 1], plan_made)
    return tuple(first.get(start, PlanMade(start, 0.0, 0.0, 0)) for start in run.rounds)


def figures(result: PolicyResult) -> dict[str, Any]:
    """Build the object that ``--json`` prints for one policy."""
    seconds = np.array([plan_made.seconds for plan_made in result.first_plans])
    gaps = np.array([plan_made.gap for plan_made in result.first_plans])
    return {
        **asdict(result.summary),
        "solve_seconds": {"median": percentile(seconds, 50), "p99": percentile(seconds, 99)},
        "proven_gap": {"median": percentile(gaps, 50), "max": float(gaps.max(initial=0.0))},
        "wall_seconds": result.wall_seconds,
    }


def write(results: Sequence[PolicyResult], folder: Path) -> dict[str, str]:
    """Write ``jobs.csv``, ``rounds.csv``, ``timeline.jsonl`` and, if there are predictions,
    ``predictions.csv``; return the paths of the tables.
    """
    folder.mkdir(parents=True, exist_ok=True)
    jobs, rounds = folder / "jobs.csv", folder / "rounds.csv"
    _write_csv(jobs, JOB_COLUMNS, results, _job_rows)
    _write_csv(rounds, ROUND_COLUMNS, results, _round_rows)
    with (folder / "timeline.jsonl").open("w", encoding="utf-8") as file:
        for result in results:
            for change in result.changes:
                line = {
                    "policy": result.policy,
                    "time": change.time,
                    "job": change.job,
                    "placement": change.placement.as_dict(),
                }
                file.write(json.dumps(line) + "\n")
    files = {"jobs": str(jobs), "rounds": str(rounds)}
    if any(result.predictions for result in results):
        predictions = folder / "predictions.csv"
        _write_csv(predictions, PREDICTION_COLUMNS, results, _prediction_rows)
        files["predictions"] = str(predictions)
    return files


def _write_csv(
    path: Path,
    columns: Sequence[str],
    results: Sequence[PolicyResult],
    rows: Callable[[PolicyResult], Iterable[Sequence[object]]],
) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        for result in results:
            writer.writerows(["" if v is None else v for v in row] for row in rows(result))


def _job_rows(result: PolicyResult) -> Iterable[Sequence[object]]:
    for o in result.outcomes:
        yield (result.policy, o.id, o.submit, o.first_start, o.end, o.wait, o.age,
               o.latency_ratio, o.ftf, o.restarts)  # fmt: skip


def _round_rows(result: PolicyResult) -> Iterable[Sequence[object]]:
    for state, plan_made in zip(result.rounds, result.first_plans, strict=True):
        yield (result.policy, state.time, state.queued, state.running, state.idle,
               state.fragments, state.throughput, plan_made.seconds, plan_made.gap)  # fmt: skip


def _prediction_rows(result: PolicyResult) -> Iterable[Sequence[object]]:
    return prediction_rows(result.policy, result.predictions, result.outcomes)
