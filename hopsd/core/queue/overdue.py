"""Overdue jobs go before fair share and QOS, on a part of the GPUs."""

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
"""The part of all GPUs for overdue jobs: shares and QOS order the rest."""

MIN_AGE = 600.0
"""A shorter expected run time counts as this: ``samples`` are a claim."""

STAY_FACTOR = 2.0
"""A waiting job must be this many times as overdue as a running one to displace it; otherwise the
two would keep swapping.
"""

GOLDEN_RATIO = (sqrt(5.0) - 1.0) / 2.0


@dataclass(frozen=True, slots=True)
class Boost:
    """``counts``: the GPU counts an overdue job may get ahead of any factor. ``turn``: the job is
    larger than the part, and goes before the other overdue jobs for one round.
    """

    counts: tuple[int, ...]
    turn: bool = False

    def apply(self, job: Job) -> Job:
        """The job with these counts; it may not stay in place if it runs on any other count."""
        running = job.running if job.running.gpus in self.counts else Allocation.of({})
        return replace(job, reqs=self.counts, running=running)


def overdue(
    snapshot: Snapshot, order: Sequence[Job], ages: Mapping[JobId, float], settings: PlanSettings
) -> dict[JobId, Boost]:
    """The jobs of ``order`` that go ahead of any factor; ``order`` is by factors alone.

    Of each user the one with the largest latency ratio above ``overdue_ratio``, in the order of
    these ratios, until their smallest counts are PART of the GPUs. A larger count is theirs only
    where GPUs would be left if every other job had its largest one. Of the jobs whose smallest
    count is more than that part, the most overdue comes first in one round of so many that it has
    no more than the part in the mean.

    None of them is a job with a priority of its own, or one that no idle cluster or no limit lets
    run. Running jobs that would run on by the factors alone come after the others, and only if they
    may keep every count: a boost is not to shrink them.
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
    """The running jobs of ``order`` that those before them, at their smallest counts, leave idle
    GPUs of their own types and nodes.

    An estimate: fragments are not looked at. A job that stops for that waits, and then comes first.
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
    """The overdue jobs, most overdue first, with the counts that their rules allow."""
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
    """Whether this is a round's first plan, and the round one of ``turns`` in the mean.

    Multiples of the golden ratio are spread evenly however far apart two rounds are: a plan knows
    only their nominal length, and every second or third number might be left out.
    """
    number = snapshot.now // max(1, round(snapshot.round.seconds))
    return snapshot.round.first and number * GOLDEN_RATIO % 1.0 < 1.0 / turns


def _boosts(
    snapshot: Snapshot, order: Sequence[Job], jobs: Sequence[Job], part: float
) -> dict[JobId, Boost]:
    """The counts of the ``jobs``: the smallest, and more where nobody else could use the GPUs."""
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
