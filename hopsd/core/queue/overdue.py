"""Jobs that waited for too long come before shares and QOS, on a part of the GPUs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, sqrt

import numpy as np

from hopsd.core.placement.allowances import allowances
from hopsd.core.placement.pools import could_run, pools_of
from hopsd.core.queue.competing import available_resources, idle_gpus, staying_jobs
from hopsd.core.queue.service_window import Entrance
from hopsd.model.allocation import Allocation
from hopsd.model.ids import JobId, UserName, job_order
from hopsd.model.job import Job, JobState
from hopsd.model.plan import PlanSettings, Snapshot

PART = 0.1
"""The part of all GPUs for overdue jobs: shares and QOS order the rest."""

LEAST_AGE = 600.0
"""A shorter expected run time counts as this: ``samples`` are a claim."""

STAYING = 2.0
"""How many times as overdue as one that runs a job is that takes its turn: they would go on
changing places otherwise.
"""

GOLDEN = (sqrt(5.0) - 1.0) / 2.0


@dataclass(frozen=True, slots=True)
class Boost:
    """``counts``: the GPUs that an overdue job may have for coming before any factor; ``turn``: it
    is larger than the part, and comes before the other overdue jobs for a round.
    """

    counts: tuple[int, ...]
    turn: bool = False

    def of(self, job: Job) -> Job:
        """The job with these counts; one that runs on another may not stay in its place."""
        running = job.running if job.running.gpus in self.counts else Allocation.of({})
        return replace(job, reqs=self.counts, running=running)


def overdue(
    snapshot: Snapshot, order: Sequence[Job], ages: Mapping[JobId, float], settings: PlanSettings
) -> dict[JobId, Boost]:
    """The jobs of ``order`` that come before any factor; ``order``: by factors alone.

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

    def may_enter(job: Job, entrance: Entrance) -> bool:
        return could_run(job, pools, settings.sigma) and entrance.blocks(job) is None

    late = _late(snapshot, ages, settings)
    if not late:
        return {}
    safe = _run_on(snapshot, order, may_enter)
    late.sort(key=lambda job: job.id in safe)
    entrance = _entrance(snapshot)
    part = left = PART * sum(node.gpus for node in snapshot.nodes)
    chosen: list[Job] = []
    for job in late:
        if job.id in competing and min(job.reqs) > part and may_enter(job, entrance):
            if _has_its_turn(snapshot, ceil(min(job.reqs) / part)):
                entrance.enter(job)
                chosen.append(job)
            break
    users: set[UserName] = set()
    for job in late:
        stays = job.id not in competing
        least = job.running.gpus if stays else min(job.reqs)
        if job.user not in users and least <= left and (stays or may_enter(job, entrance)):
            users.add(job.user)
            left -= least
            if not stays:
                entrance.enter(job)
                chosen.append(job)
    boosts = _boosts(snapshot, order, chosen, part)
    whole = {job.id for job in chosen if boosts[job.id].counts == job.reqs}
    return {job: boost for job, boost in boosts.items() if job not in safe or job in whole}


def _entrance(snapshot: Snapshot) -> Entrance:
    return Entrance(allowances(snapshot.limits, staying_jobs(snapshot)))


def _run_on(
    snapshot: Snapshot, order: Sequence[Job], may_enter: Callable[[Job, Entrance], bool]
) -> frozenset[JobId]:
    """The running jobs of ``order`` that those before them, at their smallest counts, leave idle
    GPUs of their own types and nodes.

    An estimate: fragments are not looked at. A job that stops for that waits, and then comes first.
    """
    available = available_resources(snapshot)
    entrance = _entrance(snapshot)
    types = np.array([node.gpu_type for node in snapshot.nodes])
    idle, ahead = int(available.gpus.sum()), 0
    found = set()
    for job in order:
        if ahead >= idle:
            break
        if may_enter(job, entrance):
            entrance.enter(job)
            ahead += min(job.reqs)
            if job.running:
                own = available.usable_gpus(job.rules)[np.isin(types, list(job.throughput))]
                if ahead <= own.sum():
                    found.add(job.id)
    return frozenset(found)


def _late(snapshot: Snapshot, ages: Mapping[JobId, float], settings: PlanSettings) -> list[Job]:
    """The overdue jobs, most overdue first, with the counts that their rules allow."""
    late = []
    for job in snapshot.jobs:
        if job.state is not JobState.WAITING or job.priority is not None:
            continue
        ratio = job.wait_seconds / max(ages[job.id], LEAST_AGE)
        counts = tuple(
            count
            for count in job.rules.counts(job.reqs)
            if any(job.rules.enough(kind, count) for kind in job.throughput)
        )
        if counts and ratio > settings.overdue_ratio:
            rank = -ratio * (STAYING if job.running else 1.0)
            late.append((rank, job.submit, job_order(job.id), replace(job, reqs=counts)))
    return [job for *_, job in sorted(late, key=lambda entry: entry[:-1])]


def _has_its_turn(snapshot: Snapshot, turns: int) -> bool:
    """Whether this is a round's first plan, and the round one of ``turns`` in the mean.

    Multiples of the golden ratio are spread evenly however far apart two rounds are: a plan knows
    only their nominal length, and every second or third number might be left out.
    """
    number = snapshot.now // max(1, round(snapshot.round.seconds))
    return snapshot.round.first and number * GOLDEN % 1.0 < 1.0 / turns


def _boosts(
    snapshot: Snapshot, order: Sequence[Job], chosen: Sequence[Job], part: float
) -> dict[JobId, Boost]:
    """The counts of the ``chosen``: the smallest, and more where nobody else could use the GPUs."""
    least = {job.id: min(job.reqs) for job in chosen}
    free = sum(idle_gpus(snapshot)) - sum(least.get(job.id, max(job.reqs)) for job in order)
    found = {}
    for job in chosen:
        counts = tuple(n for n in job.reqs if n <= least[job.id] + max(0, free))
        free -= max(counts) - least[job.id]
        found[job.id] = Boost(counts, turn=least[job.id] > part)
    return found
