"""Jobs that waited for too long come before shares and QOS, on a part of the GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil

from hopsd.core.placement.allowances import allowances
from hopsd.core.placement.pools import could_run, pools_of
from hopsd.core.queue.competing import idle_gpus, staying_jobs
from hopsd.core.queue.window import Entrance
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


@dataclass(frozen=True, slots=True)
class Boost:
    """``counts``: the GPUs that an overdue job may have for coming before any factor; ``turn``: it
    is larger than the part, and comes before the other overdue jobs for a round.
    """

    counts: tuple[int, ...]
    turn: bool = False


def overdue(
    snapshot: Snapshot, order: Sequence[Job], ages: Mapping[JobId, float], settings: PlanSettings
) -> dict[JobId, Boost]:
    """The jobs of ``order`` that come before any factor; ``order``: by factors alone.

    Of each user the one with the largest latency ratio above ``overdue_ratio``, in the order of
    these ratios, until their smallest counts are PART of the GPUs. A larger count is theirs only
    where GPUs would be left if every other job had its largest one. Of the jobs whose smallest
    count is more than that part, the most overdue comes first in one round of so many that it has
    no more than the part in the mean.

    None of them is a job with a priority of its own, one that gets its largest count anyhow, one
    that no idle cluster or no limit lets run, and one that has more GPUs now than it would get.
    """
    competing = {job.id for job in order}
    late = _late(snapshot, order, ages, settings)
    pools = pools_of(snapshot.nodes)
    entrance = Entrance(allowances(snapshot.limits, staying_jobs(snapshot)))

    def may_enter(job: Job) -> bool:
        return could_run(job, pools, settings.sigma) and entrance.blocks(job) is None

    part = left = PART * sum(node.gpus for node in snapshot.nodes)
    chosen: list[Job] = []
    for job in late:
        if job.id in competing and min(job.reqs) > part and may_enter(job):
            if _has_its_turn(snapshot, ceil(min(job.reqs) / part)):
                entrance.enter(job)
                chosen.append(job)
            break
    users: set[UserName] = set()
    for job in late:
        stays = job.id not in competing
        least = job.running.gpus if stays else min(job.reqs)
        if job.user not in users and least <= left and (stays or may_enter(job)):
            users.add(job.user)
            left -= least
            if not stays:
                entrance.enter(job)
                chosen.append(job)
    return _boosts(snapshot, order, chosen, part)


def _late(
    snapshot: Snapshot, order: Sequence[Job], ages: Mapping[JobId, float], settings: PlanSettings
) -> list[Job]:
    """The overdue jobs that need to come first, most overdue first, with the counts that their
    rules allow.
    """
    ahead, gpus = 0, sum(idle_gpus(snapshot))
    secure = set()
    for job in order:
        ahead += max(job.reqs)
        if ahead <= gpus:
            secure.add(job.id)
    late = []
    for job in snapshot.jobs:
        if job.state is not JobState.WAITING or job.priority is not None or job.id in secure:
            continue
        ratio = job.wait_seconds / max(ages[job.id], LEAST_AGE)
        counts = tuple(
            count
            for count in job.rules.counts(job.reqs)
            if any(job.rules.enough(kind, count) for kind in job.throughput)
        )
        if counts and ratio > settings.overdue_ratio:
            rank = ratio * (STAYING if job.running else 1.0)
            late.append((-rank, job.submit, job_order(job.id), replace(job, reqs=counts)))
    return [job for *_, job in sorted(late, key=lambda entry: entry[:-1])]


def _has_its_turn(snapshot: Snapshot, turns: int) -> bool:
    """Whether this is a round's first plan, and the round one of ``turns``."""
    seconds = max(1, round(snapshot.round.seconds))
    return snapshot.round.first and int(snapshot.now // seconds) % turns == 0


def _boosts(
    snapshot: Snapshot, order: Sequence[Job], chosen: Sequence[Job], part: float
) -> dict[JobId, Boost]:
    """The counts of the ``chosen``: the smallest, and more where nobody else could use the GPUs."""
    least = {job.id: min(job.reqs) for job in chosen}
    free = sum(idle_gpus(snapshot)) - sum(least.get(job.id, max(job.reqs)) for job in order)
    found = {}
    for job in chosen:
        counts = tuple(n for n in job.reqs if n <= least[job.id] + max(0, free))
        if job.running.gpus <= max(counts):
            free -= max(counts) - least[job.id]
            found[job.id] = Boost(counts, turn=least[job.id] > part)
    return found
