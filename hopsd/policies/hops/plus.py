"""`hops+`: the Hops program with another column value.

    max  sum_ij W_i U_ij X_ij                                  (servers, limits as in eq. 12, 13)

    U_ij = (u_ij / u_i)^0.65              u_ij = v_ij h_ij / (h_ij + c_ij)
    W_i  = B_i (s_i^a_i + l e_i k_i^3 + m f_i o_i^6) z_i
    B_i  = 1 + d_i ((wait_i / age_i)^2 + 3 max(0, rho_i - 1)^2)
    s_i  = mean over all jobs j of min(1, w_j / w_i)^8        w_i: GPU time left
    a_i  = max(0.3, p_i^3)                p_i: n times the GPUs make it n^p_i times as fast

``v_ij`` is job i's speed under column j; its restart ``c_ij`` (0 where it runs now, and at its
first start) is spread over ``h_ij``, the time that its rest takes there, five minutes at most and
as long as a restart at least. ``u_i`` is that of one GPU of the mean type, for a job that has to
start. ``rho_i`` is the least finish-time fairness that the job can still have. ``s_i`` is nearly
the share of jobs with at least as much work left as job i; jobs of one GPU count are ranked in
groups of as many as fit at once, and each has its group's mean share. ``d_i`` is 1; where all jobs
have one GPU count and all GPUs are alike, it is 0.1, and a group is one job, or two in a short
queue. ``a_i`` is 1 for jobs of one GPU count; of jobs that scale badly, little is gained by giving
all GPUs to one after the other. ``k_i`` is the shortest time in which its rest can be done over the
time in which the cluster can do everybody's, ``e_i`` is 2 for an elastic job and 1 for others where
GPU types differ in speed, 1 and 0.15 where all GPUs are alike, and ``l`` the setting
``tail_weight``. ``o_i`` is the least completion time that the job can still have over the largest
of these of all jobs, ``f_i`` one over its largest GPU count, times 0.2 where all GPUs are alike,
and ``m`` the setting ``p99_weight``. ``z_i`` is ``1 + c_i / h_i`` on one GPU of the mean type while
the job runs, since it has to restart if it is stopped, and 1 while it waits.
docs/policies.md has each term's reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import fsum, inf, log
from typing import ClassVar

import numpy as np

from hopsd.core.placement.configurations import Configurations
from hopsd.core.placement.pools import Pools, pools_for, pools_of, remembered
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
from hopsd.model.arrays import Bools, Floats, Ints
from hopsd.model.ids import JobId, job_order
from hopsd.model.job import Job, JobState, Node
from hopsd.model.plan import Plan, PlanSettings, RoundInfo, Snapshot
from hopsd.policies.hops.candidates import Candidates
from hopsd.policies.hops.policy import place

POWER = 0.65

UNFAIR = 3.0
"""Weight of ending later than on a fair share."""

HORIZON_SECONDS = 300.0
"""No placement is expected to last longer: others come and go."""

ALIKE = 8.0
"""How sharply jobs are told apart by the work they have left: one with a tenth less counts half."""

SCALING = 3.0
"""Power of a job's scaling: the worse jobs scale, the less they are told apart."""

LEAST_SHARP = 0.3
"""The share's power for a job that does not scale at all."""

GROUP_MOST = 8
"""The most jobs that are ranked together: of many small ones, a group would be half the queue."""

GROUP_LEAST = 2
"""The same where all jobs are rigid and all GPUs alike: there, groups of more cost the mean 2 %."""

SHORT_QUEUE = 1.5
"""Jobs that ask for more than so many times the cluster's GPUs are not in groups there at all:
somebody always comes between before the last of them run.
"""

BEHIND_ALIKE = 0.1
"""d of a rigid job where all jobs are rigid and all GPUs alike. In a long queue there, most jobs
have waited for several times their run time, and ranked by that, they wait longer on average.
"""

LAST = 3.0
"""How sharply the job that will end last differs from others."""

LONGEST = 6.0
"""How sharply the job that will take longest from its arrival differs from others."""

LONGEST_ALIKE = 0.2
"""f of a job of one GPU where GPUs are all alike: a long queue there costs the mean most."""

TAIL_ELASTIC = 1.0, 2.0
"""e of elastic jobs where GPUs are all alike, and where types differ: there, they seldom get the
fastest configuration, which k assumes.
"""

TAIL_RIGID = 0.15, 1.0
"""e of jobs of one GPU count: where GPUs are all alike, they lose nothing but time by waiting."""

UNLIKE = 0.15
"""By how much the fastest GPU type is faster than the mean one where types differ in full."""

_MOST = 1e60
_LEAST_SECONDS = 1e-60

REACH = 3
"""The window's reach: the program chooses among more jobs than fit."""


@dataclass(frozen=True, slots=True)
class HopsPlus:
    """The policy. Its rounds end early: a restart is charged by how long it lasts, so that jobs
    move to idle GPUs only if they gain by it.
    """

    ends_early: ClassVar[bool] = True

    def __call__(self, snapshot: Snapshot, settings: PlanSettings) -> Plan:
        """Plan as :func:`hopsd.policies.hops.policy.plan`, but for the largest sum of W U.

        A job's priority is its W. Spreading does not depend on sigma: columns are valued by their
        speed. Where shares or QOS come first, each overdue job counts more than all others
        together.
        """
        outlooks = _remaining_work(snapshot)
        weight = _weights(snapshot, settings, outlooks)
        competing = [job for job in competing_jobs(snapshot) if job.id in weight]
        order = sorted(competing, key=lambda job: (-weight[job.id], job.submit, job_order(job.id)))
        first = boosts(snapshot, order, settings)
        above = _above(weight, outlooks)
        weight |= {
            job: above ** (2 if boost.turn else 1) * max(1.0, weight[job])
            for job, boost in first.items()
        }
        ranked = {
            job.id: replace(
                first[job.id].of(job) if job.id in first else job, priority=weight[job.id]
            )
            for job in competing
        }
        jobs = tuple(ranked.get(job.id, job) for job in snapshot.jobs)

        def worth(
            chosen: Candidates, configurations: Configurations, _: RoundInfo, __: PlanSettings
        ) -> Program:
            own = [outlooks[job.id] for job in chosen.jobs]
            weights = [weight[job.id] for job in chosen.jobs]
            return _program(chosen.jobs, own, configurations, weights)

        return place(
            replace(snapshot, jobs=jobs), replace(settings, sigma=inf), worth, REACH, slide=True
        )


plan = HopsPlus()


def _above(weight: Mapping[JobId, float], outlooks: Mapping[JobId, RemainingWork]) -> float:
    """A weight with which the slowest configuration is worth more than the fastest of all others
    together.
    """
    own = [outlooks[job] for job in weight]
    least = min((min(1.0, o.slowest / o.unit) for o in own), default=1.0)
    most = max((2.0 * max(1.0, o.fastest / o.unit) for o in own), default=1.0)
    ratio: float = (most / least) ** POWER
    return ratio * (len(weight) + 1) * max(weight.values(), default=1.0)


@dataclass(frozen=True, slots=True)
class RemainingWork:
    """The remaining work of a job.

    ``samples``; ``gpu_seconds`` on one GPU of the mean type; ``age``: all of its expected run time,
    in seconds; ``slowest``, ``fastest``: samples per second over its configurations on an idle
    cluster; ``scaling``: of its GPU counts, from the least to the fastest, n times the GPUs make it
    ``n ** scaling`` times as fast, from 0 to 1. ``ahead``: the speed of one GPU of the cluster's
    fastest type over that of one of the mean type.
    """

    samples: float
    gpu_seconds: float
    age: float
    slowest: float
    fastest: float
    scaling: float
    ahead: float

    @property
    def unit(self) -> float:
        """Samples per second of one GPU of the mean type."""
        return self.samples / self.gpu_seconds

    @property
    def shortest(self) -> float:
        """The remaining time in the fastest configuration, in seconds."""
        return self.samples / self.fastest


def _remaining_work(snapshot: Snapshot) -> dict[JobId, RemainingWork]:
    """Remaining work of jobs that an idle cluster could run, without held and dependent ones."""
    pools = pools_of(snapshot.nodes)
    jobs = [job for job in snapshot.jobs if job.state is JobState.WAITING]
    expected = ages(jobs, snapshot.nodes)
    known = remembered(snapshot.nodes)
    found = {}
    for job in jobs:
        about = _ways, job.reqs, job.rules, job.sensitivity
        way = known.of(job, about, partial(_ways, job, pools))
        if way is not None:
            slowest, fastest, mean, scaling, ahead = way
            age = expected[job.id]
            gpu_seconds = remaining_seconds(job, age) * mean_count(job.reqs)
            found[job.id] = RemainingWork(
                gpu_seconds * mean, gpu_seconds, age, slowest, fastest, scaling, ahead
            )
    return found


def _ways(job: Job, pools: Pools) -> tuple[float, float, float, float, float] | None:
    """Samples per second on an idle cluster: slowest and fastest configuration, and the mean of one
    GPU as used in eq. 9; its scaling, and how far the fastest type is ahead. None if it cannot run.
    """
    able = pools_for(job, pools, sigma=inf)
    slowest, seconds, gpus = inf, 0.0, 0
    fastest: dict[int, float] = {}
    for pool in able:
        table = job.throughput[pool.gpu_type]
        for size in job.reqs:
            nodes = 1 if size <= pool.largest else -(-size // pool.largest)
            if not job.rules.enough(pool.gpu_type, size):
                continue
            if size <= pool.gpus and (rate := size * per_gpu(table, size, nodes)) > 0.0:
                slowest = min(slowest, rate)
                fastest[size] = max(rate, fastest.get(size, 0.0))
        alone = single_gpu(job, pool.gpu_type)
        if alone > 0.0:
            seconds, gpus = seconds + pool.gpus / alone, gpus + pool.gpus
    if not fastest or not gpus:
        return None
    mean = gpus / seconds
    ahead = max(single_gpu(job, pool.gpu_type) for pool in pools.values()) / mean
    return slowest, max(fastest.values()), mean, _scaling(fastest), ahead


def _scaling(fastest: Mapping[int, float]) -> float:
    """p of ``n ** p``, from 0 to 1, for samples per second by GPU count."""
    least, best = min(fastest), max(fastest, key=lambda count: (fastest[count], -count))
    if least == best:
        return 0.0
    return min(1.0, log(fastest[best] / fastest[least]) / log(best / least))


def _weights(
    snapshot: Snapshot, settings: PlanSettings, outlooks: Mapping[JobId, RemainingWork]
) -> dict[JobId, float]:
    """W of each job. An explicitly set priority replaces the latency ratio."""
    jobs = [job for job in snapshot.jobs if job.id in outlooks]
    if not jobs:
        return {}
    late = priorities(jobs, snapshot.nodes, settings, snapshot.now)
    own = [outlooks[job.id] for job in jobs]
    work = np.array([outlook.gpu_seconds for outlook in own])
    shortest = np.array([outlook.shortest for outlook in own])
    gpus = sum(node.gpus for node in snapshot.nodes)
    fitting = _fitting(jobs, snapshot.nodes)
    drained = max(fsum(work) / gpus, _drained(jobs, shortest, fitting))
    elastic = np.array([len(set(job.reqs)) > 1 for job in jobs])
    ahead = np.array([outlook.ahead for outlook in own])
    unlike = np.clip((ahead - 1.0) / UNLIKE, 0.0, 1.0)
    alike, differ = np.where(elastic[:, None], TAIL_ELASTIC, TAIL_RIGID).T
    last = (alike + (differ - alike) * unlike) * (shortest / drained) ** LAST
    sharp = np.maximum(LEAST_SHARP, np.array([o.scaling for o in own]) ** SCALING)
    by_work = _by_work_alone(elastic, unlike)
    size = np.clip(fitting, 1, _group_most(jobs, gpus, by_work))
    share = np.where(elastic, _shares(work) ** sharp, _grouped(jobs, work, size))
    # Not since its submission: a hold is no unfairness of the plan's.
    ends = np.array([job.wait_seconds + job.run_seconds for job in jobs]) + shortest
    most = np.array([max(job.reqs) for job in jobs])
    costs = (LONGEST_ALIKE + (1.0 - LONGEST_ALIKE) * unlike) / most
    longest = costs * (ends / ends.max()) ** LONGEST
    urgency = share + settings.tail_weight * last + settings.p99_weight * longest
    restart = np.array([job.restart_seconds if job.running else 0.0 for job in jobs])
    unit = np.array([outlook.unit for outlook in own])
    urgency *= unit / _lasting(unit, np.array([outlook.samples for outlook in own]), restart)
    behind_counts = 1.0 - (1.0 - BEHIND_ALIKE) * by_work
    weights = {}
    for job, outlook, end, u, d in zip(jobs, own, ends, urgency, behind_counts, strict=True):
        rho = float(end) / seconds_on_share(job, outlook.age, gpus, len(jobs))
        behind = _squared(late[job.id]) + UNFAIR * _squared(rho - 1.0)
        weights[job.id] = float((1.0 + d * behind) * u)
    return weights


def _by_work_alone(elastic: Bools, unlike: Floats) -> Floats:
    """How far each job is ranked by its work alone, (jobs,), from 0 to 1: not at all if it is
    elastic or GPU types differ, else by the share of pairs of jobs of which both are rigid.
    """
    rigid = 1.0 - elastic.mean()
    return np.where(elastic, 0.0, (1.0 - unlike) * rigid**2)


def _group_most(jobs: Sequence[Job], gpus: int, by_work: Floats) -> Ints:
    """The most jobs that are ranked together with each, (jobs,); ``by_work`` (jobs,): how far it is
    ranked by its work alone.
    """
    short = sum(min(job.reqs) for job in jobs) <= SHORT_QUEUE * gpus
    least = GROUP_LEAST if short else 1
    most: Ints = np.rint(GROUP_MOST - (GROUP_MOST - least) * by_work).astype(np.int64)
    return most


def _shares(work: Floats) -> Floats:
    """s of each job, (jobs,), from their remaining ``work`` (jobs,)."""
    of, job, count = np.unique(work, return_inverse=True, return_counts=True)
    log = ALIKE * np.log(np.maximum(of, _LEAST_SECONDS))
    no_more = np.exp(np.logaddexp.accumulate(log + np.log(count)) - log)
    more = len(work) - np.cumsum(count)
    shares: Floats = ((more + no_more) / len(work))[job]
    return shares


def _grouped(jobs: Sequence[Job], work: Floats, size: Ints) -> Floats:
    """s of each job of one GPU count, (jobs,), from their remaining ``work`` (jobs,), in groups of
    ``size`` (jobs,).

    Where m jobs run at once, the m with most left end last in every order that has the least mean
    completion time, and which of them starts first does not change it (Conway, Maxwell, Miller
    1967, Theory of Scheduling). The same holds for each m before them, so the other terms decide
    within a group.
    """
    order = sorted(
        range(len(jobs)), key=lambda i: (-work[i], jobs[i].submit, job_order(jobs[i].id))
    )
    place = np.empty(len(jobs))
    place[order] = np.arange(len(jobs))
    shares: Floats = np.minimum(1.0, (place // size * size + (size + 1) / 2) / len(jobs))
    return shares


def _fitting(jobs: Sequence[Job], nodes: Sequence[Node]) -> Ints:
    """How many jobs of each one's least GPU count an idle cluster holds, (jobs,); each on one
    server if some server is large enough.
    """
    pools = [
        (np.array([node.gpus for node in pool.nodes]), pool) for pool in pools_of(nodes).values()
    ]
    fitting = {
        count: sum(
            int((servers // count).sum()) if count <= pool.largest else pool.gpus // count
            for servers, pool in pools
        )
        for count in {min(job.reqs) for job in jobs}
    }
    return np.array([fitting[min(job.reqs)] for job in jobs])


def _drained(jobs: Sequence[Job], shortest: Floats, fitting: Ints) -> float:
    """Seconds that ``jobs`` take together, by how many of them fit at once.

    The most over all counts, of the jobs that need as many GPUs or more. ``shortest`` (jobs,): the
    remaining time of each alone; ``fitting`` (jobs,): :func:`_fitting`.
    """
    least = np.array([min(job.reqs) for job in jobs])
    bound = float(shortest.max())
    counts, first = np.unique(least, return_index=True)
    for count, at_once in zip(counts, fitting[first], strict=True):
        if at_once:
            bound = max(bound, fsum(shortest[least >= count]) / float(at_once))
    return bound


def _squared(behind: float) -> float:
    """The positive part squared; bounded, so that no snapshot's numbers overflow."""
    return min(max(0.0, behind), _MOST) ** 2


def _program(
    jobs: Sequence[Job],
    outlooks: Sequence[RemainingWork],
    configurations: Configurations,
    weights: Sequence[float],
) -> Program:
    """The program of W and U."""
    left = np.array([outlook.samples for outlook in outlooks])
    unit = np.array([outlook.unit for outlook in outlooks])
    restart = np.array(
        [job.restart_seconds if job.running or job.run_seconds > 0.0 else 0.0 for job in jobs]
    )

    def worth(speed: Floats, job: Ints) -> Floats:
        return _lasting(speed, left[job], restart[job])

    columns, here = configurations.revalued(worth, POWER), configurations.present
    runs = here >= 0
    moved = np.ones(len(jobs))  # what a restart leaves of the present placement's worth
    moved[runs] = columns.throughput[here[runs]] / configurations.throughput[here[runs]] ** POWER
    least = _lasting(unit, left, restart) ** POWER * moved
    return build(columns, weights, 1.0, moved, least)


def _lasting(speed: Floats, left: Floats, restart: Floats) -> Floats:
    """Samples per second over the time that a placement lasts, its restart spread over it."""
    lasts = np.maximum(np.minimum(left / speed, HORIZON_SECONDS), restart + _LEAST_SECONDS)
    return speed / (1.0 + restart / lasts)
