"""Measures the smallest possible error of ends if jobs do not declare their samples.

    python -m bench.predict.floor [--philly FILE] [--sia DIR] [--shockwave DIR --speeds FILE]

Uses the replays that ``bench.predict`` has recorded, once per round. An oracle predicts ends: it
knows the distribution from which the job's work was drawn, its time limit, its progress and its
future speed, but nothing of the draw itself. It predicts the median of the remaining work, which
minimises the mean absolute error. For generated workloads, the distribution is the generator's. For
traces, it is that of the user's other jobs of the workload, or of all jobs of the workload,
including future ones; if these are few and of very different lengths, it is rough, and no bound.
The oracle is compared with "work left at the present speed", using hops' median of the remaining
work.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median_low

import click
import numpy as np

from bench.predict.__main__ import EXISTING_FOLDER, path_of, playouts_path
from bench.predict.replay import Case, Question, load_or_record, playouts_of
from bench.predict.works import Folders, works
from bench.result_file import write_result
from hopsd.model.arrays import Floats
from hopsd.model.ids import JobId
from hopsd.model.scenario import WorkloadJob
from hopsd.sim.engine import SimulationSettings
from hopsd.sim.facts import facts_of
from hopsd.sim.information.knowledge import (
    MAX_LIMIT_SLACK,
    TIME_LIMITS,
    KnowledgeSettings,
    Knows,
    public_knowledge,
)
from hopsd.sim.metrics import GpuHold, JobBaseline, holds_by_job
from hopsd.sim.models import MODELS
from hopsd.sim.presets import GPU_HOURS, MAX_GPUS, MAX_HOURS

POINTS = 2000
"""Number of points of a generated job's distribution."""

DRAWS = 20_000
"""Number of draws of GPU counts, to estimate how likely a job keeps the ones drawn first."""

MIN_ALIKE = 5
"""Minimum number of jobs for a distribution."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """Distribution of a job's work relative to the actual one: ascending ``work`` with weights."""

    work: Floats
    weight: Floats

    def with_limit(self, limit: float | None, seconds: float) -> Distribution:
        """The distribution given a time limit: a user asks for 1 to :data:`MAX_LIMIT_SLACK` times
        the job's run time, which is ``seconds`` for its actual work.
        """
        if limit not in TIME_LIMITS:
            return self
        at = TIME_LIMITS.index(limit)
        least = TIME_LIMITS[at - 1] if at else 0.0
        most = limit if at + 1 < len(TIME_LIMITS) else np.inf
        first = self.work * seconds
        slack = (MAX_LIMIT_SLACK - 1.0) * first
        inside = np.minimum(first + slack, most) - np.maximum(first, least)
        weight = self.weight * np.maximum(inside, 0.0) / slack
        return Distribution(self.work, weight) if weight.any() else self

    def median(self, done: float) -> float:
        """Median of the work above ``done``; if there is none, of a Pareto tail of index 2."""
        total = np.cumsum(np.where(self.work > done, self.weight, 0.0))
        if total[-1] <= 0.0:
            return done * 2.0**0.5
        return float(self.work[np.searchsorted(total, total[-1] / 2.0)])


@cache
def _median_counts() -> Floats:
    """Medians of the GPU counts that :func:`hopsd.sim.presets.generate` draws, ascending."""
    rng = random.Random(0)  # a simulation, not a secret
    counts = range(1, MAX_GPUS + 1)
    return np.sort(
        [median_low(sorted(rng.sample(counts, rng.randint(1, 8)))) for _ in range(DRAWS)]
    ).astype(np.float64)


def generated(job: WorkloadJob, hours: float) -> Distribution:
    """The generator's distribution of the job's ``hours`` on one GPU, given model and counts."""
    category = next(model.category for model in MODELS if model.name == job.workload)
    points = np.geomspace(*GPU_HOURS[category], POINTS)
    fewest = points / MAX_HOURS  # minimum median GPU count: jobs with fewer are drawn again
    medians = _median_counts()
    kept = 1.0 - np.searchsorted(medians, fewest, side="left") / len(medians)
    weight = np.where(fewest <= median_low(job.reqs), 1.0 / np.maximum(kept, 1e-9), 0.0)
    return Distribution(points / hours, weight)


def empirical(
    job: WorkloadJob, jobs: Sequence[WorkloadJob], seconds: Mapping[JobId, float]
) -> Distribution:
    """The distribution for a job of a trace: run times of the user's other jobs of the workload,
    else of all jobs of the workload, else of all jobs. ``seconds`` has the run time of each job,
    without waiting.
    """
    others = [other for other in jobs if other.id != job.id]
    alike = [other for other in others if other.workload == job.workload]
    for group in ([other for other in alike if other.user == job.user], alike, others):
        if len(group) >= MIN_ALIKE:
            break
    work = np.sort([seconds[other.id] for other in group])
    return Distribution(work / seconds[job.id], np.ones(len(work)))


@dataclass(frozen=True, slots=True)
class Progress:
    """Shares of its work that a job had done at ``times``; after the last of these it would
    continue with ``speed`` (shares per second).
    """

    times: Floats
    shares: Floats
    speed: float

    @staticmethod
    def from_holds(
        holds: Sequence[GpuHold], facts: JobBaseline, restart_seconds: float
    ) -> Progress:
        """The progress of an ended job. All its starts but the first are restarts."""
        times, done = [holds[0].start], [0.0]
        speed = 0.0
        for number, hold in enumerate(holds):
            begins = min(hold.end, hold.start + (restart_seconds if number else 0.0))
            speed = facts.rate(hold.allocation)
            times += [begins, hold.end]
            done += [done[-1], done[-1] + speed * (hold.end - begins)]
        return Progress(np.array(times), np.array(done) / done[-1], speed / done[-1])

    def share_at(self, time: float) -> float:
        return float(np.interp(time, self.times, self.shares))

    def time_of(self, share: float) -> float:
        """The time when this share was, or would have been, done."""
        if share >= 1.0:
            return float(self.times[-1]) + (share - 1.0) / self.speed
        first = int(np.searchsorted(self.shares, share, side="left"))
        low, high = self.shares[first - 1], self.shares[first]
        part = (share - low) / (high - low)
        return float(self.times[first - 1] + part * (self.times[first] - self.times[first - 1]))


Row = tuple[float, float]
"""Absolute errors in seconds: of the present speed, and of the oracle."""


def rows_of(case: Case) -> list[Row]:
    """Errors for the jobs that ended."""
    settings = SimulationSettings().cluster
    public = public_knowledge(
        case.cluster, case.workload, KnowledgeSettings(case.knows, seed=case.seed)
    )
    facts = {facts.id: facts for facts in facts_of(case.cluster, case.workload)}
    ages = {name: of_job.age for name, of_job in facts.items()}
    recording = load_or_record(case, path_of(case))
    playouts = playouts_of(case, recording, playouts_path(case))
    holds = holds_by_job(recording.changes)
    ends = {outcome.id: outcome.end for outcome in recording.outcomes if outcome.end is not None}
    oracles = {}
    for job in case.workload.jobs:
        if job.id in ends:
            distribution = (
                generated(job, facts[job.id].mean_gpu_seconds / 3600.0)
                if case.name.startswith("paper")
                else empirical(job, case.workload.jobs, ages)
            )
            oracles[job.id] = (
                distribution.with_limit(
                    public.time_limits.get(job.id), facts[job.id].gpu_seconds / min(job.reqs)
                ),
                Progress.from_holds(holds[job.id], facts[job.id], settings.restart_of(job)),
            )
    rounds = {
        event.situation.now
        for event in recording.events
        if isinstance(event, Question) and event.job is None
    }
    rows = []
    for (name, at), rival in playouts.present_speed.items():
        if at in rounds and name in oracles:
            distribution, progress = oracles[name]
            oracle = progress.time_of(distribution.median(progress.share_at(at)))
            rows.append((abs(rival - ends[name]), abs(oracle - ends[name])))
    return rows


HEAD = (
    "| replay | predictions | present speed, s | oracle (of present speed) |\n|---|---:|---:|---:|"
)


def line(name: str, rows: Sequence[Row]) -> str:
    """A line of the table: median absolute errors in seconds."""
    rival, oracle = np.median(np.array(rows), axis=0).tolist()
    return f"| {name} | {len(rows):,} | {rival:,.0f} | {oracle:,.0f} ({oracle / rival:.0%}) |"


@click.command()
@click.option("--philly", type=EXISTING_FOLDER)
@click.option("--sia", type=EXISTING_FOLDER)
@click.option("--shockwave", type=EXISTING_FOLDER)
@click.option("--speeds", type=EXISTING_FOLDER)
def main(
    philly: Path | None, sia: Path | None, shockwave: Path | None, speeds: Path | None
) -> None:
    lines, rows = [HEAD], []
    for case in works(Folders(philly, sia, shockwave, speeds)):
        if case.knows is not Knows.PERFECT and path_of(case).exists():
            of_case = rows_of(case)
            lines.append(line(case.label, of_case))
            print(lines[-1], flush=True)
            rows += of_case
    lines.append(line("all", rows))
    print(lines[-1])
    write_result("predictions_floor", "How close an oracle comes to ends", "\n".join(lines))


if __name__ == "__main__":
    main()
