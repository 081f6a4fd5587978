"""Overdue jobs, which go ahead of fair share and QOS on a part of the GPUs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, sqrt

import numpy as np

from hopsd.core.placement.pools import could_run, pools_of
from hopsd.core.placement.remaining_limits import limits_after
from hopsd.core.queue.competing import available_resources, idle_gpus, staying_jobs
from hopsd.core.queue.service_window import LimitBudget
from hopsd.model.allocation import Allocation
from hopsd.model.ids import JobId, UserName, job_order
from hopsd.model.job import Job, JobState
from hopsd.model.plan import PlanSettings, Snapshot

PART = 0.1
"""The share of all GPUs that overdue jobs may have; fair share and QOS decide about the rest."""

MIN_AGE = 600.0
"""Minimum expected run time in seconds: ``samples`` is only a claim, and could be too low."""

STAY_FACTOR = 2.0
"""A waiting job must be this many times as overdue as a running one to displace it; otherwise the
two would keep swapping.
"""

GOLDEN_RATIO = (sqrt(5.0) - 1.0) / 2.0


@dataclass(frozen=True, slots=True)
class Boost:
    """The precedence of an overdue job.

    ``counts``: the GPU counts that the job may get ahead of any factor. ``turn``: the job is larger
    than PART allows, and goes ahead of the other overdue jobs for one round.
    """

    counts: tuple[int, ...]
    turn: bool = False

    def apply(self, job: Job) -> Job:
        """Return the job with ``counts``; it may not stay in place if it runs on another count."""
        running = job.running if job.running.gpus in self.counts else Allocation.of({})
        return replace(job, reqs=self.counts, running=running)


def overdue(
    snapshot: Snapshot, order: Sequence[Job], ages: Mapping[JobId, float], settings: PlanSettings
) -> dict[JobId, Boost]:
    """Return the jobs of ``order`` that go ahead of any factor; ``order`` is by factors alone.

    Each user's job with the largest latency ratio above ``overdue_ratio`` is chosen, in descending
    order of these ratios, until the smallest counts of the chosen jobs reach PART of the GPUs. They
    get a larger count only if GPUs would be left over if every other job had its largest count. Of
    the jobs whose smallest count is more than PART, the most overdue goes first in one of every n
    rounds, with n such that it gets no more than PART on average.

    Jobs with an explicit priority, and jobs that could not run on an idle cluster or within the
    limits, are never chosen. Running jobs that would continue by the factors alone come after the
    others, and are only boosted if they may keep every count: a boost must not shrink them.
    """
    competing = {job.id for job in order}
    pools = pools_of(snapshot.nodes)

    def may_start(job: Job, budget: LimitBudget) -> bool:
        return could_run(job, pools, settings.sigma) and budget.blocking_limit(job) is None

    overdue_jobs = _overdue_jobs(snapshot, ages, settings)
    if not overdue_jobs:
        return {}
    would_run_on = _jobs_that_run_on(snapshot, order, may_start)
    overdue_jobs.sort(key=lambda job: job.id in would_run_on)
    budget = _limit_budget(snapshot)
    part = remaining_part = PART * sum(node.gpus for node in snapshot.nodes)
    selected_jobs: list[Job] = []
    for job in overdue_jobs:
        if job.id in competing and min(job.reqs) > part and may_start(job, budget):
            if _is_turn(snapshot, ceil(min(job.reqs) / part)):
                budget.reserve(job)
                selected_jobs.append(job)
            break
    users: set[UserName] = set()
    for job in overdue_jobs:
        stays = job.id not in competing
        smallest_count = job.running.gpus if stays else min(job.reqs)
        if (
            job.user not in users
            and smallest_count <= remaining_part
            and (stays or may_start(job, budget))
        ):
            users.add(job.user)
            remaining_part -= smallest_count
            if not stays:
                budget.reserve(job)
                selected_jobs.append(job)
    boosts = _boosts(snapshot, order, selected_jobs, part)
    unrestricted_jobs = {job.id for job in selected_jobs if boosts[job.id].counts == job.reqs}
    return {
        job: boost
        for job, boost in boosts.items()
        if job not in would_run_on or job in unrestricted_jobs
    }


def _limit_budget(snapshot: Snapshot) -> LimitBudget:
    return LimitBudget(limits_after(snapshot.limits, staying_jobs(snapshot)))


def _jobs_that_run_on(
    snapshot: Snapshot, order: Sequence[Job], may_start: Callable[[Job, LimitBudget], bool]
) -> frozenset[JobId]:
    """Return the running jobs of ``order`` that would probably continue.

    The jobs ahead of such a job, at their smallest counts, leave it idle GPUs of its types and
    nodes. This is an estimate that ignores fragments. A job that stops because of it waits, and is
    then first.
    """
    available = available_resources(snapshot)
    budget = _limit_budget(snapshot)
    types = np.array([node.gpu_type for node in snapshot.nodes])
    idle, claimed_gpus = int(available.gpus.sum()), 0
    jobs = set()
    for job in order:
        if claimed_gpus >= idle:
            break
        if may_start(job, budget):
            budget.reserve(job)
            claimed_gpus += min(job.reqs)
            if job.running:
                usable = available.usable_gpus(job.rules)[np.isin(types, list(job.throughput))]
                if claimed_gpus <= usable.sum():
                    jobs.add(job.id)
    return frozenset(jobs)


def _overdue_jobs(
    snapshot: Snapshot, ages: Mapping[JobId, float], settings: PlanSettings
) -> list[Job]:
    """Return the overdue jobs, most overdue first, with the counts that their rules allow."""
    entries = []
    for job in snapshot.jobs:
        if job.state is not JobState.WAITING or job.priority is not None:
            continue
        ratio = job.wait_seconds / max(ages[job.id], MIN_AGE)
        counts = tuple(
            count
            for count in job.rules.counts(job.reqs)
            if any(job.rules.enough(kind, count) for kind in job.throughput)
        )
        if counts and ratio > settings.overdue_ratio:
            rank = -ratio * (STAY_FACTOR if job.running else 1.0)
            entries.append((rank, job.submit, job_order(job.id), replace(job, reqs=counts)))
    return [job for *_, job in sorted(entries, key=lambda entry: entry[:-1])]


def _is_turn(snapshot: Snapshot, turns: int) -> bool:
    """Whether this is the first plan of a round, and the round is one of ``turns`` on average.

    Multiples of the golden ratio are spread evenly however far apart two rounds are: a plan knows
    only the rounds' nominal length, so every second or third number might be skipped.
    """
    number = snapshot.now // max(1, round(snapshot.round.seconds))
    return snapshot.round.first and number * GOLDEN_RATIO % 1.0 < 1.0 / turns


def _boosts(
    snapshot: Snapshot, order: Sequence[Job], jobs: Sequence[Job], part: float
) -> dict[JobId, Boost]:
    """Return the counts of ``jobs``: the smallest, and more if nobody else could use the GPUs."""
    smallest_counts = {job.id: min(job.reqs) for job in jobs}
    free = sum(idle_gpus(snapshot)) - sum(
        smallest_counts.get(job.id, max(job.reqs)) for job in order
    )
    boosts = {}
    for job in jobs:
        counts = tuple(n for n in job.reqs if n <= smallest_counts[job.id] + max(0, free))
        free -= max(counts) - smallest_counts[job.id]
        boosts[job.id] = Boost(counts, turn=smallest_counts[job.id] > part)
    return boosts
