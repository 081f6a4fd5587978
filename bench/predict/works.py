"""Provides the works: generated ones to learn from, and others to measure on."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from bench import unseen
from bench.predict.replay import Case
from bench.study.cases import BASE, Conditions
from bench.study.works import OTHER_CLUSTERS, draw
from hopsd.formats.source import read_text
from hopsd.model.ids import GpuType, NodeName
from hopsd.model.scenario import Cluster, Server, WorkloadJob
from hopsd.sim.information.knowledge import Knows
from hopsd.sim.logs.importers import IMPORTERS, workload_of
from hopsd.sim.presets import preset

LEARN_SEED = 1000
"""Seeds from this one on are used only for the prior."""

LEARN = (
    ("slurm", Knows.MEASURED),
    ("slurm", Knows.NONE),
    ("slurm", Knows.PERFECT),
    ("hops", Knows.MEASURED),
    ("hops", Knows.PERFECT),
    ("hops+", Knows.MEASURED),
    ("hops+", Knows.PERFECT),
)
"""Policies and knowledge that the works to learn from use in turn."""

ELASTIC = tuple(product(("hops", "hops+"), (Knows.PERFECT, Knows.MEASURED)))
"""Elastic policies and knowledge on generated workloads. On traces, only :data:`Knows.MEASURED` is
used, which is what a daemon would have."""

LOADS = 0.6, 2.0
JOBS = 40, 160
MAX_TAIL = 1.6
"""Bounds of the values drawn for a work to learn from: load, number of jobs, and the standard
deviation of the logarithm of the factors that multiply run times.
"""

BURST_JOBS = 12

LARGE_JOBS = 150
"""Number of jobs of ``paper-512`` that are used, to save time."""

PHILLY_GPUS = 48
"""The trace needs 54 on average: jobs wait, but not for days."""


@dataclass(frozen=True, slots=True)
class Folders:
    """Paths of published traces; those that are None are left out."""

    philly: Path | None = None
    sia: Path | None = None
    shockwave: Path | None = None
    speeds: Path | None = None


def works(folders: Folders) -> Iterator[Case]:
    """Yield the cases to measure, none of which was used for the prior."""
    paper_preset = preset("paper-64")
    rigid = [("slurm", knows) for knows in Knows]
    for rate in (10.0, 25.0):
        workload = paper_preset.workload(7, jobs=50, rate_per_hour=rate)
        for policy, knows in (*rigid, *ELASTIC):
            yield Case(f"paper-64, {rate:g}/h", paper_preset.cluster(), workload, policy, knows, 7)
    if folders.philly is not None:
        yield from _philly(folders.philly)
    for work in unseen.traces(folders.sia, folders.shockwave, folders.speeds):
        is_rigid = "rigid" in work.family or "rigid" in work.name
        cluster, workload = work.make()
        name = work.name if work.name.startswith(("philly", "saturn")) else f"Shockwave {work.name}"
        name = f"Sia {name}" if folders.sia and work.family.startswith("Sia") else name
        for policy, knows in rigid[1:] if is_rigid else ELASTIC[1::2]:
            yield Case(name if is_rigid else f"{name}, elastic", cluster, workload, policy, knows)
    large = preset("paper-512")
    workload = large.workload(7, jobs=LARGE_JOBS)
    for policy in ("slurm", "hops", "hops+"):
        yield Case("paper-512", large.cluster(), workload, policy, Knows.MEASURED, 7)


def _philly(path: Path) -> Iterator[Case]:
    servers = (Server(NodeName(f"n{i}"), GpuType("gpu"), 8) for i in range(PHILLY_GPUS // 8))
    cluster = Cluster(tuple(servers))
    workload = workload_of(IMPORTERS["philly"](read_text(str(path))), cluster)
    for policy, knows in (
        ("slurm", Knows.MEASURED),
        ("slurm", Knows.NONE),
        ("hops", Knows.MEASURED),
        ("hops+", Knows.MEASURED),
    ):
        yield Case("Philly, 500 jobs", cluster, workload, policy, knows)


def to_learn(number: int) -> Case:
    """A work for the prior, with random cluster, load, jobs, tail of run times and arrivals."""
    seed = LEARN_SEED + number
    rng = random.Random(seed)  # a simulation, not a secret
    policy, knows = LEARN[number % len(LEARN)]
    name = rng.choice((BASE, *OTHER_CLUSTERS))
    load = math.exp(rng.uniform(*map(math.log, LOADS)))
    conditions = Conditions(load=load, rigid=rng.choice((0.0, 0.5, 1.0)))
    cluster, workload = draw(name, conditions, seed, round(rng.uniform(*JOBS)))
    jobs = _arrive(_with_tail(workload.jobs, rng.uniform(0.0, MAX_TAIL), rng), rng)
    return Case(f"learn {number}", cluster, replace(workload, jobs=jobs), policy, knows, seed)


def _with_tail(
    jobs: Sequence[WorkloadJob], sigma: float, rng: random.Random
) -> tuple[WorkloadJob, ...]:
    """Give run times a heavier tail, with the same sum."""
    factors = [rng.lognormvariate(0.0, sigma) for _ in jobs]
    mean = sum(job.samples * f for job, f in zip(jobs, factors, strict=True)) / sum(
        job.samples for job in jobs
    )
    return tuple(
        replace(job, samples=job.samples * f / mean) for job, f in zip(jobs, factors, strict=True)
    )


def _arrive(jobs: Sequence[WorkloadJob], rng: random.Random) -> tuple[WorkloadJob, ...]:
    """Let jobs arrive as drawn, in waves like those of days, or in bursts."""
    kind = rng.choice(("drawn", "waves", "bursts"))
    span = jobs[-1].submit
    if kind == "waves" and span > 0.0:
        waves = rng.uniform(1.0, 4.0) * 2.0 * math.pi / span
        return tuple(
            replace(
                job, submit=job.submit + 0.9 * math.sin(waves * job.submit) / waves + 1.0 / waves
            )
            for job in jobs
        )
    if kind == "bursts":
        starts = [job.submit for job in jobs]
        first = 0
        while first < len(jobs):
            size = rng.randint(1, BURST_JOBS)
            starts[first : first + size] = [
                starts[first] + 10.0 * i for i in range(len(starts[first : first + size]))
            ]
            first += size
        starts.sort()
        return tuple(replace(job, submit=at) for job, at in zip(jobs, starts, strict=True))
    return tuple(jobs)
