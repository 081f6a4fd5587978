"""The order of the queue: expected run time and priority (section 3.6, eq. 8 and 9)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import fsum

from hopsd.core.placement.pools import DEFAULT_SIGMA, RunnableFilter, job_cache, pools_of
from hopsd.core.queue.competing import competing_jobs
from hopsd.core.queue.overdue import Boost, overdue
from hopsd.core.speed.throughput import single_gpu
from hopsd.model.ids import JobId, job_order
from hopsd.model.job import Job, JobState, Node
from hopsd.model.plan import PlanSettings, PriorityName, Snapshot

DEFAULT_AGE_SECONDS = 3600.0
"""Assumed age of a job without samples, time limit or configured default."""

_NEARLY_DONE = 1e-3
"""The minimum remaining share of a job's age."""


def age_seconds(job: Job, nodes: Sequence[Node]) -> float:
    """Return a job's expected run time without waiting: given, by eq. 9, or the time limit."""
    return _age(job, _Alone(nodes))


def ages(jobs: Sequence[Job], nodes: Sequence[Node]) -> dict[JobId, float]:
    """Return `age_seconds` of several jobs."""
    alone = _Alone(nodes)
    return {job.id: _age(job, alone) for job in jobs}


class _Alone:
    """Speeds of single GPUs in the pools where a job could run.

    They are computed once per set of tables, since a plan asks for its jobs' ages several times.
    """

    def __init__(self, nodes: Sequence[Node], sigma: float = DEFAULT_SIGMA) -> None:
        pools = pools_of(nodes)
        self.gpus = sum(pool.gpus for pool in pools.values())
        self._sigma, self._cache = sigma, job_cache(nodes)
        self._able = RunnableFilter(pools, sigma, self._cache)

    def speeds(self, job: Job) -> list[tuple[int, float]]:
        """Return ``(GPUs, samples per second of one)`` for each pool where the job could run."""
        key = "speeds", self._sigma, job.reqs, job.rules, job.sensitivity
        return self._cache.lookup(job, key, lambda: self._speeds(job))

    def _speeds(self, job: Job) -> list[tuple[int, float]]:
        pools = self._able.pools(job)
        return [(pool.gpus, single_gpu(job, pool.gpu_type)) for pool in pools]


@lru_cache(maxsize=4096)
def mean_count(reqs: tuple[int, ...]) -> float:
    """Return R_avg of eq. 9."""
    sizes = set(reqs)
    return sum(sizes) / len(sizes)


def _age(job: Job, alone: _Alone) -> float:
    """Return the age, at least the time already run: understating it gives no lasting advantage."""
    return max(_promised_age(job, alone), job.run_seconds)


def _promised_age(job: Job, alone: _Alone) -> float:
    if job.age_seconds is not None:
        return job.age_seconds
    if job.samples is not None:
        speeds = alone.speeds(job)
        if speeds:
            mean = mean_count(job.reqs)
            weighted_seconds = [gpus * (job.samples / (speed * mean)) for gpus, speed in speeds]
            return fsum(weighted_seconds) / sum([gpus for gpus, _ in speeds])
    if job.time_limit_seconds is not None:
        return job.time_limit_seconds
    return DEFAULT_AGE_SECONDS


@dataclass(frozen=True, slots=True)
class _Situation:
    """Inputs of a priority apart from the job. ``present``: jobs that share the cluster."""

    now: float
    alone: _Alone
    present: int


def _latency_ratio(job: Job, context: _Situation) -> float:
    return job.wait_seconds / _age(job, context.alone)


def _fifo(job: Job, context: _Situation) -> float:
    return context.now - job.submit


def _sjf(job: Job, context: _Situation) -> float:
    return 1.0 / _age(job, context.alone)


def _srtf(job: Job, context: _Situation) -> float:
    return 1.0 / _remaining_seconds(job, context)


def _las(job: Job, _: _Situation) -> float:
    return 1.0 / (1.0 + job.attained_gpu_seconds)


def _ftf(job: Job, context: _Situation) -> float:
    """Return the finish-time fairness (Themis eq. 1): finish in the shared cluster over alone.

    It is 0 on a cluster without GPUs.
    """
    if not context.alone.gpus:
        return 0.0
    age = _age(job, context.alone)
    shared_seconds = max(0.0, context.now - job.submit) + remaining_seconds(job, age)
    return shared_seconds / seconds_on_share(job, age, context.alone.gpus, max(1, context.present))


def seconds_on_share(job: Job, age: float, gpus: int, present: int) -> float:
    """Return the seconds that a job of this ``age`` takes alone on 1/N of the cluster.

    N is ``present``, the number of jobs. The share has every GPU type in the cluster's proportion:
    eq. 9 with ``gpus / N`` GPUs instead of the mean requirement, and no more than the job may use.
    """
    return age * mean_count(job.reqs) / min(gpus / present, float(max(job.reqs)))


MIN_FACTOR = 0.05
"""The minimum factor of fair share or QOS in a product: a latency ratio 20 times as large
outweighs any factor, so no job starves.
"""

LEVELS = 64
"""Number of levels of a factor that comes first. Each level has twice the weight of the previous
one; within a level the latency ratio decides.
"""


_OVERDUE = 2.0 ** (LEVELS + 2)
"""The weight of overdue jobs, above any factor that comes first."""

_FIRST = frozenset({PriorityName.FAIR_SHARE_FIRST, PriorityName.QOS_FIRST})


def _product(factor: float, ratio: float) -> float:
    return ratio * max(factor, MIN_FACTOR)


def _first(factor: float, ratio: float) -> float:
    return 2.0 ** round(factor * LEVELS) * (1.0 + ratio / (1.0 + ratio))


def _fair_share(job: Job, context: _Situation) -> float:
    return _product(job.share, _latency_ratio(job, context))


def _fair_share_first(job: Job, context: _Situation) -> float:
    return _first(job.share, _latency_ratio(job, context))


def _qos(job: Job, context: _Situation) -> float:
    return _product(job.qos_weight, _latency_ratio(job, context))


def _qos_first(job: Job, context: _Situation) -> float:
    return _first(job.qos_weight, _latency_ratio(job, context))


def _remaining_seconds(job: Job, context: _Situation) -> float:
    return remaining_seconds(job, _age(job, context.alone))


def remaining_seconds(job: Job, age: float) -> float:
    """Return the remaining part of the age: by samples if known, else by elapsed run time.

    A job that has outlived its expected run time has no known end. Run times vary over orders of
    magnitude, so the best guess is that it takes as long again.
    """
    progress = job.run_seconds / age if job.samples is None else job.samples_done / job.samples
    return age if progress >= 1.0 else max(age * (1.0 - progress), age * _NEARLY_DONE)


_FORMULAS: Mapping[PriorityName, Callable[[Job, _Situation], float]] = {
    PriorityName.LATENCY_RATIO: _latency_ratio,
    PriorityName.FIFO: _fifo,
    PriorityName.SJF: _sjf,
    PriorityName.SRTF: _srtf,
    PriorityName.LAS: _las,
    PriorityName.FTF: _ftf,
    PriorityName.FAIR_SHARE: _fair_share,
    PriorityName.FAIR_SHARE_FIRST: _fair_share_first,
    PriorityName.QOS: _qos,
    PriorityName.QOS_FIRST: _qos_first,
}


def priorities(
    jobs: Sequence[Job],
    nodes: Sequence[Node],
    settings: PlanSettings,
    now: float,
    present: int | None = None,
) -> dict[JobId, float]:
    """Return the urgency of each job (larger is more urgent); an explicit priority has precedence.

    ``present``: number of jobs that share the cluster (N of finish-time fairness), by default that
    of ``jobs``.
    """
    alone = _Alone(nodes, settings.sigma)
    situation = _Situation(now, alone, len(jobs) if present is None else present)
    formula = _FORMULAS[settings.priority]
    return {
        job.id: job.priority if job.priority is not None else formula(job, situation)
        for job in jobs
    }


@dataclass(frozen=True, slots=True)
class Queue:
    """``jobs`` in queue order: priority descending, then submit time, then job id."""

    jobs: tuple[Job, ...]
    priority: Mapping[JobId, float]


def queue(snapshot: Snapshot, settings: PlanSettings) -> Queue:
    """Return the jobs that a plan decides about, most urgent first."""
    jobs = competing_jobs(snapshot)
    present = sum(job.state is JobState.WAITING for job in snapshot.jobs)
    priority = priorities(jobs, snapshot.nodes, settings, snapshot.now, present)
    boosts_by_job = boosts(snapshot, _in_order(jobs, priority).jobs, settings)
    priority |= {
        job: _OVERDUE ** (2 if boost.turn else 1) * priority[job]
        for job, boost in boosts_by_job.items()
    }
    jobs = [boosts_by_job[job.id].apply(job) if job.id in boosts_by_job else job for job in jobs]
    return _in_order(jobs, priority)


def boosts(snapshot: Snapshot, order: Sequence[Job], settings: PlanSettings) -> dict[JobId, Boost]:
    """Return the overdue jobs of ``order``, if a factor ranks above the waiting time."""
    if settings.priority not in _FIRST:
        return {}
    alone = _Alone(snapshot.nodes, settings.sigma)
    run_times = {job.id: _age(job, alone) for job in snapshot.jobs}
    return overdue(snapshot, order, run_times, settings)


def _in_order(jobs: Sequence[Job], priority: Mapping[JobId, float]) -> Queue:
    order = sorted(jobs, key=lambda job: (-priority[job.id], job.submit, job_order(job.id)))
    return Queue(tuple(order), priority)
