"""What measuring runs gain and cost: new trainings measured first, or started at once on a guess.

    python -m bench.first_runs [--work mix --work paper-64] [--seeds 3] [--policy hops+] [--write]

Simulations with the daemon's knowledge: run times from past runs and time limits, speeds from what
jobs report once they train. "guess": nothing is known of these workloads at first, but three others
have run on every GPU type; a workload's basic times on a type become known once a job of it has
trained there. "blank": the same on a cluster that has seen nothing. "measured": basic times are
known on every type, and the first job of each workload arrives later by its measuring runs, one on
each type. "truth": all speeds are known, as a bound. Each shape's true speed has a random error
(bench.true_speeds).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace

import click
import numpy as np

from bench.result_file import write_result
from bench.study.cases import Case, Conditions
from bench.study.works import work
from bench.true_speeds import MODEL, Times, TrueSpeeds, known_at_first, times_of
from hopsd.core.snapshot.settings import SnapshotSettings
from hopsd.core.speed.estimator import EstimatorSettings
from hopsd.model.ids import GpuType, JobId, WorkloadName
from hopsd.model.knowledge import Knowledge, Theory
from hopsd.model.scenario import Cluster, Workload
from hopsd.policies.registry import get
from hopsd.sim.engine import Run, Simulation, SimulationSettings
from hopsd.sim.facts import facts_of
from hopsd.sim.information.knowledge import KnowledgeSettings, Knows
from hopsd.sim.metrics import job_outcomes
from hopsd.sim.presets import PRESETS

RUN_SECONDS = 40.0
"""Length of a measuring run: a start of 30 s, as in the simulator's restarts, and 20 iterations."""

WAYS = ("measured", "guess", "blank", "truth")
OTHER_WORKLOADS = 3
"""Workloads that the cluster has seen before."""

WORKS = ("mix", "mix-new", "paper-64", "paper-512")
"""``mix-new`` is ``mix`` with two jobs per workload name on average, so that most are new."""


class LearningSimulation(Simulation):
    """Learns a workload's basic times on a GPU type once a job of it trains there."""

    def __init__(self, *arguments: object, theory: Sequence[Theory], **keywords: object) -> None:
        super().__init__(*arguments, **keywords)  # type: ignore[arg-type]
        self._theory = {(fit.workload, fit.gpu_type): fit for fit in theory}

    def _learn(self) -> None:
        super()._learn()
        for report in self.port.reports():
            fit = self._theory.pop((report.workload, report.gpu_type), None)
            if fit is not None:
                knowledge = self._store.known_tables
                fit = replace(fit, at=self.port.now)
                self._store.known_tables = replace(knowledge, theory=(*knowledge.theory, fit))


@dataclass(frozen=True, slots=True)
class RunHours:
    """Results in hours; ``first_wait`` is the mean seconds until a workload's first job trains."""

    mean: float
    p99: float
    makespan: float
    first_wait: float
    measuring: float


def draw_case(name: str, seed: int, jobs: int) -> tuple[Cluster, Workload, Times]:
    """Draw a cluster, jobs with true speeds, and basic times by workload and type."""
    base = "mix" if name.startswith("mix") else name
    cluster, workload = work(Case(base, Conditions(), "hops+", seed), None)
    times = times_of(PRESETS["paper-64" if base == "mix" else base])
    jobs_drawn = workload.jobs[:jobs]
    new_names = {}
    if name == "mix-new":
        for number, job in enumerate(jobs_drawn):
            new_names[job.id] = WorkloadName(f"{job.workload}-{number // 14}")
    jobs_drawn = tuple(replace(j, workload=new_names.get(j.id, j.workload)) for j in jobs_drawn)
    originals = {new_names.get(job.id, job.workload): job.workload for job in workload.jobs[:jobs]}
    tables = {
        new: {
            kind: replace(table, by_shape=TrueSpeeds(times[old, kind], f"{new} {kind}", seed))
            for kind, table in workload.throughput[old].items()
        }
        for new, old in originals.items()
    }
    new_workloads = {
        (new, kind): times[old, kind] for new, old in originals.items() for kind in tables[new]
    }
    return cluster, replace(workload, jobs=jobs_drawn, throughput=tables), new_workloads


def _of_others(theory: Sequence[Theory]) -> tuple[Theory, ...]:
    """The basic times of three workloads, under names that no job has."""
    names = sorted({fit.workload for fit in theory})[:OTHER_WORKLOADS]
    return tuple(
        replace(fit, workload=WorkloadName(f"earlier-{fit.workload}"))
        for fit in theory
        if fit.workload in names
    )


def firsts(workload: Workload) -> frozenset[JobId]:
    """The first job of each workload."""
    first_jobs: dict[WorkloadName, JobId] = {}
    for job in sorted(workload.jobs, key=lambda job: job.submit):
        first_jobs.setdefault(job.workload, job.id)
    return frozenset(first_jobs.values())


def play(way: str, cluster: Cluster, workload: Workload, times: Times, policy: str) -> RunHours:
    """Run one simulation; ``way`` is one of :data:`WAYS`."""
    first = firsts(workload)
    types: set[GpuType] = {server.gpu_type for server in cluster.servers}
    delay = RUN_SECONDS * len(types) if way == "measured" else 0.0
    later = tuple(
        replace(job, submit=job.submit + delay) if job.id in first else job for job in workload.jobs
    )
    knowledge = known_at_first(PRESETS["paper-64"], times, is_calibrated=False)
    defaults = SimulationSettings()
    settings = SimulationSettings(
        refresh_seconds=30.0,
        plan=replace(defaults.plan, policy=policy),
        snapshot=SnapshotSettings(EstimatorSettings(model=MODEL)),
        knowledge=KnowledgeSettings(Knows.MEASURED),
    )
    other_workloads = Knowledge(theory=_of_others(knowledge.theory))
    learns = {"guess": other_workloads, "blank": Knowledge(), "measured": knowledge, "truth": None}[
        way
    ]
    run: Run = LearningSimulation(
        cluster,
        replace(workload, jobs=tuple(sorted(later, key=lambda job: job.submit))),
        get(policy),
        settings,
        learns=learns,
        theory=knowledge.theory if way in ("guess", "blank") else (),
    ).run()
    outcomes = {
        outcome.id: outcome
        for outcome in job_outcomes(
            run.changes, facts_of(cluster, workload), cluster.gpus, frozenset()
        )
    }
    times_taken = [
        outcomes[job.id].end - job.submit  # type: ignore[operator]
        for job in workload.jobs
    ]
    waits = [
        (outcomes[job.id].first_start or 0.0) - job.submit
        for job in workload.jobs
        if job.id in first
    ]
    ends = [outcomes[job.id].end or 0.0 for job in workload.jobs]
    return RunHours(
        float(np.mean(times_taken)) / 3600.0,
        float(np.percentile(times_taken, 99)) / 3600.0,
        max(ends) / 3600.0,
        float(np.mean(waits)),
        delay * len(first) / 3600.0,
    )


@click.command()
@click.option("--work", "works", multiple=True, default=WORKS, type=click.Choice(WORKS))
@click.option("--seeds", default=3)
@click.option("--jobs", default=120, help="First jobs of a work to use.")
@click.option("--policy", default="hops+")
@click.option("--processes", default=1, help="Simulations at a time.")
@click.option("--write", is_flag=True, help="Write bench/results/first_runs.md.")
def main(
    works: Sequence[str], seeds: int, jobs: int, policy: str, processes: int, *, write: bool
) -> None:
    """Print the means over seeds, and each way's geometric mean ratio to measuring first."""
    lines = [
        "| work | way | mean h | 99 % h | makespan h | first job's wait s | measuring GPU h |",
        "|---|---|---|---|---|---|---|",
    ]
    print("\n".join(lines), flush=True)
    for name in works:
        for row in rows(name, seeds, jobs, policy, processes):
            print(row, flush=True)
            lines.append(row)
    if write:
        write_result(
            "first_runs", "New trainings: measured first, or started at once", "\n".join(lines)
        )


def _task(way: str, name: str, seed: int, jobs: int, policy: str) -> RunHours:
    return play(way, *draw_case(name, seed, jobs), policy)


def rows(name: str, seeds: int, jobs: int, policy: str, processes: int) -> Iterator[str]:
    """Yield a row of the table for each way."""
    tasks = [(way, name, seed, jobs, policy) for seed in range(seeds) for way in WAYS]
    with ProcessPoolExecutor(processes) as pool:
        results = list(pool.map(_task, *zip(*tasks, strict=True)))
    runs_by_way: dict[str, list[RunHours]] = {way: [] for way in WAYS}
    for (way, *_), result in zip(tasks, results, strict=True):
        runs_by_way[way].append(result)
    for way, runs in runs_by_way.items():
        cells = []
        for figure in ("mean", "p99", "makespan"):
            values = np.array([getattr(run, figure) for run in runs])
            peers = np.array([getattr(run, figure) for run in runs_by_way["measured"]])
            logs = np.log(values / peers)
            error = logs.std(ddof=1) / np.sqrt(len(logs)) if len(logs) > 1 else 0.0
            cells.append(f"{values.mean():.2f} ({np.exp(logs.mean()):.3f} ± {error:.3f})")
        wait = float(np.mean([run.first_wait for run in runs]))
        measuring_runs = float(np.mean([run.measuring for run in runs]))
        yield f"| {name} | {way} | {' | '.join(cells)} | {wait:.0f} | {measuring_runs:.1f} |"


if __name__ == "__main__":
    main()
