"""`hops+`: the Hops program with another column value.

    max  sum_ij W_i U_ij X_ij                                (servers, limits as in eq. 12, 13)

    U_ij = (u_ij / u_i)^0.65               u_ij = v_ij h_ij / (h_ij + c_ij)
    W_i  = s_i (1 + r_i^2 + 3 max(0, rho_i - 1)^2) z_i
    s_i  = mean over all jobs j of min(1, w_j / w_i)^8

``v_ij`` is job i's speed under column j; its restart ``c_ij`` (0 where it runs now, and at its
first start) is spread over ``h_ij``, the time that its remaining work takes there, but at most five
minutes and at least as long as a restart. ``u_i`` is the same speed per GPU of the mean type, with
the GPU count at which it is highest, for a job that has to start: a speed that is faked for all
counts cancels out. ``w_i`` is the GPU time that the job has left, so ``s_i`` is nearly the share of
jobs with at least as much left: the jobs that job i would keep waiting. ``r_i`` is its latency
ratio, ``rho_i`` the least finish-time fairness that it can still reach if its speed grows linearly
with its GPUs or, where the job says so, faster. ``z_i`` is ``1 + c_i / h_i`` at the speed ``u_i``
while the job runs, since it has to restart if it is stopped, and 1 while it waits.

The setting ``tail_weight``, l, replaces ``s_i`` by ``s_i + l k_i^3``, where ``k_i`` is the shortest
possible time for the job's remaining work over the time that the cluster needs for everybody's.

W_i rises with the time that the job has waited, and falls with its remaining work if l is 0. No
other job's wait changes it. docs/policies.md says what follows from this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import fsum, inf
from typing import ClassVar

import numpy as np

from hopsd.core.placement.configurations import Configurations
from hopsd.core.placement.pools import Pools, job_cache, pools_for, pools_of
from hopsd.core.placement.program import Program, build
from hopsd.core.queue.competing import competing_jobs
from hopsd.core.queue.priority import (
    ages,
    boosts,
    mean_count,
    priorities,
    remaining_seconds,
    seconds_on_share,
)
from hopsd.core.speed.throughput import per_gpu, single_gpu
from hopsd.model.arrays import Floats, Ints
from hopsd.model.ids import JobId, job_order
from hopsd.model.job import Job, JobState
from hopsd.model.plan import Plan, PlanSettings, RoundInfo, Snapshot
from hopsd.policies.hops.candidates import Candidates
from hopsd.policies.hops.policy import place

POWER = 0.65
"""Value of more GPUs: a job that is twice as fast counts 2^0.65 = 1.57 times."""

PAYBACK_SECONDS = 300.0
"""A restart has to pay off within this time, after which other jobs may have arrived."""

UNFAIR = 3.0
"""Weight of ending later than on a fair share, relative to that of the waiting time."""

LIKE = 8.0
"""How sharply remaining work distinguishes jobs: one with a tenth less counts half."""

REACH = 3
"""The window's reach: jobs for three times the cluster's GPUs compete."""

LAST = 3.0
"""How sharply the job that will end last differs from others (``tail_weight``)."""

_MAX_DELAY = 1e60
_MIN_SECONDS = 1e-60


@dataclass(frozen=True, slots=True)
class HopsPlus:
    """The policy. Its rounds end early: restarts are charged by their length, so that jobs move to
    idle GPUs only if they gain by it.
    """

    ends_early: ClassVar[bool] = True

    def __call__(self, snapshot: Snapshot, settings: PlanSettings) -> Plan:
        """Plan as :func:`hopsd.policies.hops.policy.plan`, but maximise the sum of W U.

        A job's priority is its W. Spreading does not depend on sigma: columns are valued by their
        speed. If shares or QOS come first, each overdue job counts more than all others
        together.
        """
        outlooks = _remaining_work(snapshot)
        weight = _weights(snapshot, settings, outlooks)
        competing = [job for job in competing_jobs(snapshot) if job.id in weight]
        order = sorted(competing, key=lambda job: (-weight[job.id], job.submit, job_order(job.id)))
        first = boosts(snapshot, order, settings)
        top_weight = _dominating_weight(weight, outlooks)
        weight |= {
            job: top_weight ** (2 if boost.turn else 1) * max(1.0, weight[job])
            for job, boost in first.items()
        }
        weighted_jobs = {
            job.id: replace(
                first[job.id].apply(job) if job.id in first else job, priority=weight[job.id]
            )
            for job in competing
        }
        jobs = tuple(weighted_jobs.get(job.id, job) for job in snapshot.jobs)

        worth = _RemainingWorth(outlooks, weight)
        return place(
            replace(snapshot, jobs=jobs), replace(settings, sigma=inf), worth, REACH, slide=True
        )


plan = HopsPlus()


@dataclass(frozen=True, slots=True)
class _RemainingWorth:
    """Values configurations by the jobs' remaining work and ``weight``; can be pickled."""

    outlooks: Mapping[JobId, RemainingWork]
    weight: Mapping[JobId, float]

    def __call__(
        self,
        candidates: Candidates,
        configurations: Configurations,
        _round: RoundInfo,
        _settings: PlanSettings,
    ) -> Program:
        return _program(
            candidates.jobs,
            [self.outlooks[job.id] for job in candidates.jobs],
            configurations,
            [self.weight[job.id] for job in candidates.jobs],
        )


@dataclass(frozen=True, slots=True)
class RemainingWork:
    """The remaining work of a job.

    ``samples`` and ``gpu_seconds`` on one GPU of the mean type are what remains; ``age`` is all of
    its expected run time, in seconds; ``unit``: samples per second per GPU of the mean type, with
    the best of its counts; ``slowest``, ``fastest``: samples per second of its slowest and fastest
    configuration on an idle cluster.
    """

    samples: float
    gpu_seconds: float
    age: float
    unit: float
    slowest: float
    fastest: float

    @property
    def shortest(self) -> float:
        """The remaining time in the fastest configuration, in seconds."""
        return self.samples / self.fastest


def _dominating_weight(
    weight: Mapping[JobId, float], outlooks: Mapping[JobId, RemainingWork]
) -> float:
    """A weight that makes a job's slowest configuration worth more than the fastest ones of all
    other jobs together.
    """
    work = [outlooks[job] for job in weight]
    slowest_gain = min((min(1.0, w.slowest / w.unit) for w in work), default=1.0)
    fastest_gain = max((2.0 * max(1.0, w.fastest / w.unit) for w in work), default=1.0)
    ratio: float = (fastest_gain / slowest_gain) ** POWER
    return ratio * (len(weight) + 1) * max(weight.values(), default=1.0)


def _remaining_work(snapshot: Snapshot) -> dict[JobId, RemainingWork]:
    """Remaining work of jobs that an idle cluster could run, except held and dependent ones."""
    pools = pools_of(snapshot.nodes)
    jobs = [job for job in snapshot.jobs if job.state is JobState.WAITING]
    expected_seconds = ages(jobs, snapshot.nodes)
    memory = job_cache(snapshot.nodes)
    work = {}
    for job in jobs:
        memory_key = _speed_range, job.reqs, job.rules, job.sensitivity
        speeds = memory.lookup(job, memory_key, partial(_speed_range, job, pools))
        if speeds is not None:
            alone, *speed_range = speeds
            age = expected_seconds[job.id]
            gpu_seconds = remaining_seconds(job, age) * mean_count(job.reqs)
            work[job.id] = RemainingWork(gpu_seconds * alone, gpu_seconds, age, *speed_range)
    return work


def _speed_range(job: Job, pools: Pools) -> tuple[float, float, float, float] | None:
    """Samples per second on an idle cluster: with one GPU, per GPU with the best of the job's
    counts (both are means over the types as in eq. 9), and of the job's slowest and fastest
    configuration. None if it cannot run.
    """
    slowest, fastest, alone_seconds, best_seconds, gpus = inf, 0.0, 0.0, 0.0, 0
    for pool in pools_for(job, pools, sigma=inf):
        table = job.throughput[pool.gpu_type]
        best = 0.0
        for size in job.reqs:
            nodes = 1 if size <= pool.largest else -(-size // pool.largest)
            if not job.rules.enough(pool.gpu_type, size):
                continue
            speed = per_gpu(table, size, nodes)
            if size <= pool.gpus and (rate := size * speed) > 0.0:
                slowest, fastest = min(slowest, rate), max(fastest, rate)
                best = max(best, speed)
        alone = single_gpu(job, pool.gpu_type)
        if alone > 0.0:
            alone_seconds += pool.gpus / alone
            best_seconds += pool.gpus / (best or alone)
            gpus += pool.gpus
    if fastest <= 0.0 or not gpus:
        return None
    return gpus / alone_seconds, gpus / best_seconds, slowest, fastest


def _weights(
    snapshot: Snapshot, settings: PlanSettings, outlooks: Mapping[JobId, RemainingWork]
) -> dict[JobId, float]:
    """W of each job. An explicitly set priority replaces the latency ratio."""
    jobs = [job for job in snapshot.jobs if job.id in outlooks]
    if not jobs:
        return {}
    outlook = [outlooks[job.id] for job in jobs]
    gpus = sum(node.gpus for node in snapshot.nodes)
    work = np.array([job_outlook.gpu_seconds for job_outlook in outlook])
    shortest = np.array([job_outlook.shortest for job_outlook in outlook])
    urgency = _shares(work)
    if settings.tail_weight:
        drain_seconds = max(fsum(work) / gpus, float(shortest.max()))
        urgency += settings.tail_weight * (shortest / drain_seconds) ** LAST
    urgency *= _restart_stakes(jobs, outlook)
    priority_of_job = priorities(jobs, snapshot.nodes, settings, snapshot.now)
    weights = {}
    for job, job_outlook, u in zip(jobs, outlook, urgency.tolist(), strict=True):
        # Speeds add up in the fair share, so they do here: otherwise a job that claims to be slow
        # on several GPUs is late before it has waited, and ended 1.37 times sooner (docs/lies.md).
        remaining = min(job_outlook.shortest, job_outlook.gpu_seconds / max(job.reqs))
        # Do not count from submission: a hold is not an unfairness of the plan.
        end = job.wait_seconds + job.run_seconds + remaining
        fairness = end / seconds_on_share(job, job_outlook.age, gpus, len(jobs))
        delay = _square(priority_of_job[job.id]) + UNFAIR * _square(fairness - 1.0)
        weights[job.id] = float((1.0 + delay) * u)
    return weights


def _shares(work: Floats) -> Floats:
    """Compute s (jobs,) from the remaining ``work`` (jobs,)."""
    amounts, job, count = np.unique(work, return_inverse=True, return_counts=True)
    log = LIKE * np.log(np.maximum(amounts, _MIN_SECONDS))
    no_more = np.exp(np.logaddexp.accumulate(log + np.log(count)) - log)
    larger_jobs = len(work) - np.cumsum(count)
    shares: Floats = ((larger_jobs + no_more) / len(work))[job]
    return shares


def _restart_stakes(jobs: Sequence[Job], outlook: Sequence[RemainingWork]) -> Floats:
    """Compute z (jobs,)."""
    unit = np.array([job_outlook.unit for job_outlook in outlook])
    samples = np.array([job_outlook.samples for job_outlook in outlook])
    restart = np.array([job.restart_seconds if job.running else 0.0 for job in jobs])
    return unit / _speed_net_of_restart(unit, samples, restart)


def _square(delay: float) -> float:
    """Square the positive part of ``delay``, bounded so that no snapshot's numbers overflow."""
    return min(max(0.0, delay), _MAX_DELAY) ** 2


def _program(
    jobs: Sequence[Job],
    outlook: Sequence[RemainingWork],
    configurations: Configurations,
    weights: Sequence[float],
) -> Program:
    """Build the program with weights W and values U."""
    samples = np.array([job_outlook.samples for job_outlook in outlook])
    unit = np.array([job_outlook.unit for job_outlook in outlook])
    restart = np.array(
        [job.restart_seconds if job.running or job.run_seconds > 0.0 else 0.0 for job in jobs]
    )

    def worth(speed: Floats, job: Ints) -> Floats:
        return _speed_net_of_restart(speed, samples[job], restart[job])

    columns, present = configurations.revalue(worth, POWER), configurations.present
    running = present >= 0
    restart_factor = np.ones(len(jobs))  # share of the present placement's worth after a restart
    present_columns = present[running]
    restart_factor[running] = (
        columns.throughput[present_columns] / configurations.throughput[present_columns] ** POWER
    )
    min_value = _speed_net_of_restart(unit, samples, restart) ** POWER * restart_factor
    return build(columns, weights, 1.0, restart_factor, min_value)


def _speed_net_of_restart(speed: Floats, samples: Floats, restart: Floats) -> Floats:
    """Samples per second of a placement when its restart is spread over the time that it lasts."""
    lasts = np.maximum(np.minimum(samples / speed, PAYBACK_SECONDS), restart + _MIN_SECONDS)
    return speed / (1.0 + restart / lasts)
