"""What the policies of a simulation know about jobs: the truth, what hopsd would, or little."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import exp

from hopsd.errors import InputError
from hopsd.model.ids import GpuType, JobId, WorkloadName
from hopsd.model.job import ThroughputTable
from hopsd.model.scenario import Cluster, Workload, WorkloadJob
from hopsd.sim.facts import facts_of

MEASURED_SPEED_ERROR = 0.12
"""Standard deviation of ln(speed) of shapes that were never measured, after one spread measurement:
a mean error of 10 % (docs/estimator.md)."""

ASSUMED_SENSITIVITY = 1.5
"""As ``knowledge.assumed_sensitivity``: the slowdown by spreading if nothing was measured."""

TIME_LIMITS = tuple(hours * 3600.0 for hours in (1, 2, 4, 8, 12, 24, 48, 72, 168))
MAX_LIMIT_SLACK = 5.0
"""Workloads have no time limits, so these are made up: a user asks for 1 to MAX_LIMIT_SLACK times
what the job takes with its fewest GPUs, rounded up to the next of ``TIME_LIMITS``."""


class Knows(StrEnum):
    """``PERFECT``: true speeds and samples. ``MEASURED``: the true speed of one GPU, others with an
    error; run times from past runs in the simulation, until then from time limits. ``NONE``: only
    time limits.
    """

    PERFECT = "perfect"
    MEASURED = "measured"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class KnowledgeSettings:
    """``speed_error`` and ``time_error`` are standard deviations of ln(known / true) of the speed
    of every shape of several GPUs, and of the samples; None means 0, or for measured speeds
    :data:`MEASURED_SPEED_ERROR`.

    Raises:
        InputError: if an error is given for a quantity that is not known at all.
    """

    source: Knows = Knows.PERFECT
    speed_error: float | None = None
    time_error: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.time_error is not None and self.source is not Knows.PERFECT:
            raise InputError(
                f"--time-error: no samples are declared with --knowledge {self.source}"
            )
        if self.speed_error is not None and self.source is Knows.NONE:
            raise InputError("--speed-error: no speeds are known with --knowledge none")

    @property
    def speed_sigma(self) -> float:
        if self.speed_error is not None:
            return self.speed_error
        return MEASURED_SPEED_ERROR if self.source is Knows.MEASURED else 0.0

    @property
    def differs(self) -> bool:
        """Whether this differs from true speeds and samples."""
        return self.source is not Knows.PERFECT or bool(self.speed_sigma or self.time_error)

    def __str__(self) -> str:
        """Say what the policies knew, in a sentence."""
        if self.source is Knows.NONE:
            return "time limits alone; all GPUs are assumed to be equally fast"
        speeds = f"speeds within {self.speed_sigma:.0%}" if self.speed_sigma else "true speeds"
        if self.source is Knows.MEASURED:
            return f"{speeds}; run times from past runs, until then from time limits"
        times = f"samples within {self.time_error:.0%}" if self.time_error else "true samples"
        return f"{speeds}, {times}"


@dataclass(frozen=True, slots=True)
class PublicKnowledge:
    """``workload`` has the speeds and samples as they are known; ``declares`` says whether comments
    state the samples, ``past_runs`` whether the run times of ended jobs are remembered.
    """

    workload: Workload
    declares: bool = True
    past_runs: bool = False
    time_limits: Mapping[JobId, float] = field(default_factory=dict)


def public_knowledge(
    cluster: Cluster, truth: Workload, settings: KnowledgeSettings
) -> PublicKnowledge:
    """Derive what the scheduler knows about ``truth``, which is the same for every policy."""
    rng = random.Random(settings.seed)  # noqa: S311  # a simulation, not a secret
    if settings.source is Knows.PERFECT:
        jobs = _with_time_errors(truth.jobs, settings.time_error or 0.0, rng)
        return PublicKnowledge(_with_speeds(replace(truth, jobs=jobs), settings.speed_sigma, rng))
    limits = _time_limits(cluster, truth, rng)
    if settings.source is Knows.NONE:
        return PublicKnowledge(_flat(truth), declares=False, time_limits=limits)
    public = replace(_with_speeds(truth, settings.speed_sigma, rng), server_factor={})
    return PublicKnowledge(public, declares=False, past_runs=True, time_limits=limits)


def _with_time_errors(
    jobs: Sequence[WorkloadJob], sigma: float, rng: random.Random
) -> tuple[WorkloadJob, ...]:
    if not sigma:
        return tuple(jobs)
    return tuple(replace(job, samples=job.samples * exp(rng.gauss(0.0, sigma))) for job in jobs)


def _with_speeds(workload: Workload, sigma: float, rng: random.Random) -> Workload:
    """Keep the speed of one GPU; multiply that of each other shape by an independent error."""
    if not sigma:
        return workload

    def with_errors(speeds: Mapping[int, float], exact: int) -> dict[int, float]:
        return {
            count: speed if count == exact else speed * exp(rng.gauss(0.0, sigma))
            for count, speed in speeds.items()
        }

    tables: dict[WorkloadName, dict[GpuType, ThroughputTable]] = {
        name: {
            gpu_type: replace(
                table,
                aggregated=with_errors(table.aggregated, 1),
                distributed=with_errors(table.distributed, 0),
            )
            for gpu_type, table in tables_by_type.items()
        }
        for name, tables_by_type in workload.throughput.items()
    }
    return replace(workload, throughput=tables)


def _flat(workload: Workload) -> Workload:
    def table(true: ThroughputTable) -> ThroughputTable:
        spread = {2: 1.0 / ASSUMED_SENSITIVITY} if true.distributed else {}
        return ThroughputTable({1: 1.0}, spread, source="assumed")

    tables = {
        name: {gpu_type: table(true) for gpu_type, true in tables_by_type.items()}
        for name, tables_by_type in workload.throughput.items()
    }
    return replace(workload, throughput=tables, server_factor={})


def _time_limits(cluster: Cluster, truth: Workload, rng: random.Random) -> dict[JobId, float]:
    limits = {}
    for spec, facts in zip(truth.jobs, facts_of(cluster, truth), strict=True):
        requested_seconds = facts.gpu_seconds / min(spec.reqs) * rng.uniform(1.0, MAX_LIMIT_SLACK)
        made_up = next(
            (limit for limit in TIME_LIMITS if limit >= requested_seconds), TIME_LIMITS[-1]
        )
        limits[spec.id] = spec.time_limit_seconds or made_up
    return limits
