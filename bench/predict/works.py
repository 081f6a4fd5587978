"""What is played: generated works to learn from, and others to be measured on."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace

from bench.predict.replay import Case
from bench.study.cases import BASE, Conditions
from bench.study.works import OTHERS, drawn
from hopsd.model.scenario import WorkloadJob
from hopsd.sim.information.knowledge import Knows

LEARN_SEED = 1000
"""Seeds from here on are for the prior alone."""

LEARN = (
    ("slurm", Knows.MEASURED),
    ("slurm", Knows.NONE),
    ("slurm", Knows.PERFECT),
    ("hops", Knows.MEASURED),
    ("hops", Knows.PERFECT),
    ("hops+", Knows.MEASURED),
    ("hops+", Knows.PERFECT),
)
"""Taken in turn by the works to learn from."""

LOADS = 0.6, 2.0
JOBS = 40, 160
TAIL_MOST = 1.6
"""Bounds of what is drawn for a work to learn from: load, jobs, and the standard deviation of what
multiplies run times, as a logarithm.
"""

BURST_JOBS = 12

PHILLY_GPUS = 48
"""The trace needs 54 on average: jobs wait, but not for days."""


def to_learn(number: int) -> Case:
    """A work for the prior: cluster, load, jobs, tail of run times and arrivals are drawn."""
    seed = LEARN_SEED + number
    rng = random.Random(seed)  # a simulation, not a secret
    policy, knows = LEARN[number % len(LEARN)]
    name = rng.choice((BASE, *OTHERS))
    load = math.exp(rng.uniform(*map(math.log, LOADS)))
    conditions = Conditions(load=load, rigid=rng.choice((0.0, 0.5, 1.0)))
    cluster, workload = drawn(name, conditions, seed, round(rng.uniform(*JOBS)))
    jobs = _arrive(_with_tail(workload.jobs, rng.uniform(0.0, TAIL_MOST), rng), rng)
    return Case("learn", cluster, replace(workload, jobs=jobs), policy, knows, seed)


def _with_tail(
    jobs: Sequence[WorkloadJob], sigma: float, rng: random.Random
) -> tuple[WorkloadJob, ...]:
    """Run times with a heavier tail and the same sum."""
    factors = [rng.lognormvariate(0.0, sigma) for _ in jobs]
    mean = sum(job.samples * f for job, f in zip(jobs, factors, strict=True)) / sum(
        job.samples for job in jobs
    )
    return tuple(
        replace(job, samples=job.samples * f / mean) for job, f in zip(jobs, factors, strict=True)
    )


def _arrive(jobs: Sequence[WorkloadJob], rng: random.Random) -> tuple[WorkloadJob, ...]:
    """As drawn, in waves of a day's course, or in bursts."""
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
