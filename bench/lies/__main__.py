"""What a user gains by lying about samples, speeds or progress, and what that costs the others.

    python -m bench.lies [--jobs 25] [--first 0] [--seeds 3] [--rigid] [--only LIE] [--write]
    python -m bench.lies --sia DIR [--policy hops+] [--tail-weight 0]

One user in ten lies about all jobs; the same workload without lies is the baseline. Faked speeds
are what the estimator would believe of them, within what is plausible. The effect of chance is
measured by two runs without lies, the second with submissions a little later. ``--write`` puts
the table into bench/results/lies_elastic.md or lies_rigid.md. ``--rigid``: each job has one of its
GPU counts. ``--sia``: Sia's traces philly 1, 2 and so on, rigid, in place of the paper's jobs; the
``sia-simulator`` folder of its authors (github: siasosp23/artifacts).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click
import numpy as np

from bench.result_file import write_result
from bench.rivals import sia
from bench.rivals.late import later
from hopsd.core.speed.plausible import plausible_tables
from hopsd.model.ids import GpuType, JobId, WorkloadName
from hopsd.model.job import ThroughputTable
from hopsd.model.plan import PlanSettings, PriorityName
from hopsd.model.scenario import Cluster, Workload
from hopsd.policies.registry import get
from hopsd.sim.cluster import ProgressReport
from hopsd.sim.engine import MAX_PLAN_SECONDS, Simulation, SimulationSettings
from hopsd.sim.presets import preset

LATE_SECONDS = 60.0
"""In the second run without lies, submissions are up to this much later."""
ALMOST_ALL = 0.999
SHARE = 10
"""Every ``SHARE``-th job is the liar's."""

Tables = Mapping[GpuType, ThroughputTable]

Report = Callable[[float, float], float]
"""Maps the samples that a job has trained and those that it claims to the samples it reports."""


@dataclass(frozen=True)
class Lie:
    """``samples`` multiplies the true samples, ``speeds`` the true speeds of several GPUs."""

    name: str
    samples: float = 1.0
    speeds: float = 1.0
    report: Report | None = None


def _stall(samples_done: float, claimed_samples: float) -> float:
    return min(samples_done, ALMOST_ALL * claimed_samples)


def _report_nothing(_samples_done: float, _claimed_samples: float) -> float:
    return 0.0


def _report_the_end(_samples_done: float, claimed_samples: float) -> float:
    return ALMOST_ALL * claimed_samples


def _report_double(samples_done: float, claimed_samples: float) -> float:
    return min(2.0 * samples_done, ALMOST_ALL * claimed_samples)


LIES = (
    Lie("samples times 0.001", 0.001),
    Lie("samples times 0.001, reports stall at 99.9 %", 0.001, report=_stall),
    Lie("the same and speeds times 1000", 0.001, 1e3, _stall),
    Lie("samples times 0.001, no reports", 0.001, report=_report_nothing),
    Lie("samples times 1000", 1000.0),
    Lie("speeds times 1000", speeds=1e3),
    Lie("speeds times 1e-9", speeds=1e-9),
    Lie("samples times 0.1, reports stall at 99.9 %", 0.1, report=_stall),
    Lie("true samples, reports always say 99.9 %", report=_report_the_end),
    Lie("true samples, reports say twice as far, at most 99.9 %", report=_report_double),
)
"""Seven lies that reviewers found to pay off, or suspected to, and three more."""


@dataclass(frozen=True)
class Scene:
    """A workload in which some jobs are the liar's; these have workload names of their own."""

    cluster: Cluster
    truth: Workload
    liars: frozenset[JobId]

    @classmethod
    def draw(cls, seed: int, jobs: int, *, rigid: bool = False) -> Scene:
        scenario = preset("paper-64")
        workload = scenario.workload(seed, jobs=jobs)
        if rigid:
            rng = random.Random(seed)
            rigid_jobs = tuple(replace(j, reqs=(rng.choice(j.reqs),)) for j in workload.jobs)
            workload = replace(workload, jobs=rigid_jobs)
        return cls.with_liars(scenario.cluster(), workload)

    @classmethod
    def with_liars(cls, cluster: Cluster, workload: Workload) -> Scene:
        """A scene in which every ``SHARE``-th job is the liar's."""
        liars = frozenset(j.id for n, j in enumerate(workload.jobs) if n % SHARE == SHARE // 2)
        liar_names = {name: WorkloadName(f"{name}.own") for name in workload.throughput}
        truth = replace(
            workload,
            throughput={
                **workload.throughput,
                **{liar_names[n]: t for n, t in workload.throughput.items()},
            },
            jobs=tuple(
                replace(j, workload=liar_names[j.workload]) if j.id in liars else j
                for j in workload.jobs
            ),
        )
        return cls(cluster, truth, liars)

    def samples(self, factor: float) -> Workload:
        """The workload in which the liar claims ``factor`` times the samples."""
        jobs = tuple(
            replace(j, samples=factor * j.samples) if j.id in self.liars else j
            for j in self.truth.jobs
        )
        return replace(self.truth, jobs=jobs)

    def speeds(self, factor: float) -> Workload:
        """The workload in which the liar's reports multiply the speeds of several GPUs by
        ``factor`` and tell the truth about one GPU.
        """
        tables = {
            name: plausible_tables(fake_tables(table, factor)) if name.endswith(".own") else table
            for name, table in self.truth.throughput.items()
        }
        return replace(self.truth, throughput=tables)

    def claims(self, lie: Lie) -> Workload:
        """The workload as users describe it."""
        return replace(self.samples(lie.samples), throughput=self.speeds(lie.speeds).throughput)

    def reports(self, lie: Lie) -> dict[JobId, ProgressReport]:
        """The progress that the liar's jobs report."""
        if lie.report is None:
            return {}
        claimed_samples = {job.id: job.samples for job in self.samples(lie.samples).jobs}
        return {job: report_of(lie.report, claimed_samples[job]) for job in self.liars}

    def completion(
        self, claims: Workload, settings: SimulationSettings, lie: Lie | None = None
    ) -> tuple[float, float]:
        """Mean seconds from submission to the end: of the liar's jobs, of the others."""
        run = Simulation(
            self.cluster,
            self.truth,
            get(settings.plan.policy),
            settings,
            known_workload=claims,
            progress_reports=self.reports(lie) if lie is not None else {},
        ).run()
        if run.unfinished:
            raise SystemExit(f"jobs never ended: {sorted(run.unfinished)[:5]}")
        ends = {change.job: change.time for change in run.changes if not change.placement}
        jct = {job.id: ends[job.id] - job.submit for job in self.truth.jobs}
        liar_jct = [seconds for job, seconds in jct.items() if job in self.liars]
        honest_jct = [seconds for job, seconds in jct.items() if job not in self.liars]
        return float(np.mean(liar_jct)), float(np.mean(honest_jct))


def trace_scene(folder: Path, name: str) -> Scene:
    traces = sia.traces(folder)
    if name not in traces:
        raise click.UsageError(f"{folder}: no trace {name}, only {', '.join(traces) or 'none'}")
    return Scene.with_liars(sia.cluster(), sia.workload(folder, traces[name], rigid=True))


def fake_tables(tables: Tables, factor: float) -> Tables:
    return {
        gpu_type: replace(
            table,
            aggregated={n: r * (factor if n > 1 else 1.0) for n, r in table.aggregated.items()},
            distributed={n: r * factor for n, r in table.distributed.items()},
        )
        for gpu_type, table in tables.items()
    }


def report_of(report: Report, claimed_samples: float) -> ProgressReport:
    """``report`` for a job that claims ``claimed_samples`` samples."""
    return lambda samples_done: report(samples_done, claimed_samples)


Means = list[tuple[float, float]]
"""For each scene the mean completion times of the liar's jobs and of the others' jobs."""


def lie_rows(
    scenes: list[Scene], honest: Means, lies: Sequence[Lie], settings: SimulationSettings
) -> list[str]:
    """One row per lie: how many times better the liar fares, and how many times worse the rest."""
    rows = []
    for lie in lies:
        means = [scene.completion(scene.claims(lie), settings, lie) for scene in scenes]
        rows.append(comparison_row(lie.name, honest, means))
    return rows


def chance_row(scenes: list[Scene], honest: Means, settings: SimulationSettings) -> str:
    """The row for a run in which nobody lies and submissions are late."""
    late_scenes = [later(scene.truth, LATE_SECONDS, seed) for seed, scene in enumerate(scenes)]
    means = [
        replace(s, truth=t).completion(t, settings)
        for s, t in zip(scenes, late_scenes, strict=True)
    ]
    return comparison_row(f"no lie, up to {LATE_SECONDS:g} s late", honest, means)


def comparison_row(title: str, honest: Means, means: Means) -> str:
    """A table row: the liar's mean when honest over that of ``means``, and the others' mean over
    theirs when all are honest.
    """
    gains = [before[0] / after[0] for before, after in zip(honest, means, strict=True)]
    costs = [after[1] / before[1] for before, after in zip(honest, means, strict=True)]
    row = (
        f"| {title} | {mean_and_interval(gains, 2)} | {max(gains):.2f}"
        f" | {mean_and_interval(costs, 3)} | {max(costs):.3f} |"
    )
    print(row, "liar:", *(f"{gain:.2f}" for gain in gains), end=" ")
    print("others:", *(f"{cost:.3f}" for cost in costs), flush=True)
    return row


def mean_and_interval(ratios: list[float], digits: int) -> str:
    """The mean and, for several ratios, half the 95 % interval by Student's t."""
    mean = f"{np.mean(ratios):.{digits}f}"
    if len(ratios) < 2:
        return mean
    from scipy import stats  # noqa: PLC0415 - a second that whoever imports this module would pay

    half = stats.t.ppf(0.975, len(ratios) - 1) * stats.sem(ratios)
    return f"{mean} ± {half:.{digits}f}"


def table(rows: list[str]) -> str:
    head = "| lie | liar: times better, mean | most | others: times worse, mean | most |"
    return "\n".join([head, "|---|---:|---:|---:|---:|", *rows])


@click.command()
@click.option("--jobs", default=25, show_default=True)
@click.option("--seeds", default=3, show_default=True, help="Draws of the workload.")
@click.option("--first", default=0, show_default=True, help="First draw, or trace less one.")
@click.option("--policy", default="hops+", show_default=True)
@click.option("--priority", default="latency_ratio", show_default=True)
@click.option("--tail-weight", default=PlanSettings().tail_weight, show_default=True)
@click.option("--rigid", is_flag=True, help="One GPU count per job.")
@click.option("--only", multiple=True, help="Only lies whose names contain this.")
@click.option("--sia", "folder", type=Path, help="Play Sia's traces instead of draws.")
@click.option("--write", is_flag=True, help="Write bench/results/lies_*.md.")
def main(
    jobs: int,
    seeds: int,
    first: int,
    policy: str,
    priority: str,
    tail_weight: float,
    rigid: bool,
    only: tuple[str, ...],
    folder: Path | None,
    write: bool,
) -> None:
    """Play every lie and print what it gains and costs."""
    if write and (folder is not None or policy != "hops+"):
        raise click.UsageError("--write is only for draws under hops+")
    plan = PlanSettings(
        effort=0,
        time_limit_seconds=MAX_PLAN_SECONDS,
        policy=policy,
        priority=PriorityName(priority),
        tail_weight=tail_weight,
    )
    settings = SimulationSettings(plan=plan)
    scenes = (
        [Scene.draw(seed, jobs, rigid=rigid) for seed in range(first, first + seeds)]
        if folder is None
        else [trace_scene(folder, f"philly-{seed + 1}") for seed in range(first, first + seeds)]
    )
    honest = [scene.completion(scene.truth, settings) for scene in scenes]
    print("honest, hours:", [(round(a / 3600, 2), round(b / 3600, 2)) for a, b in honest])
    lies = [lie for lie in LIES if not only or any(part in lie.name for part in only)]
    rows = [chance_row(scenes, honest, settings), *lie_rows(scenes, honest, lies, settings)]
    text = table(rows)
    if write:
        kind = "rigid" if rigid else "elastic"
        write_result(f"lies_{kind}", f"What lies gain: {kind} jobs", text)


if __name__ == "__main__":
    main()
