"""A wrapper that puts off starts which Slurm would refuse beside others of the same plan."""

from __future__ import annotations

from dataclasses import replace

from hopsd.core.queue.competing import staying_jobs
from hopsd.core.queue.priority import queue
from hopsd.model.allocation import Allocation
from hopsd.model.ids import JobId
from hopsd.model.job import Job
from hopsd.model.plan import Plan, PlanSettings, Snapshot
from hopsd.model.reason import Reason, ReasonCode
from hopsd.model.rules import Limit
from hopsd.policies.wrapper import Wrapper

PLANS = 4
"""Plans that are made, each without the starts that the ones before it had to put off."""


class Staggered(Wrapper):
    """A policy whose plans' starts may reach Slurm in any order.

    A job that a limit does not bind may still use it up (``Limit.exempt``); to the jobs of the
    limit it counts once it runs. Where a plan starts such a job beside jobs of the limit, and too
    little is left for all, the later ones in the queue start with the next plan, and this one is
    made without them: no running job stops for a start that is put off.
    """

    def __call__(self, snapshot: Snapshot, settings: PlanSettings) -> Plan:
        plan = self._policy(snapshot, settings)
        late = more = _late(plan, snapshot, settings)
        for _ in range(1, PLANS):
            if not more:
                break
            left = replace(snapshot, jobs=tuple(j for j in snapshot.jobs if j.id not in late))
            plan = self._policy(left, settings)
            more = _late(plan, left, settings)
            late = {**late, **more}
        if not late:
            return plan
        given = {job: place for job, place in plan.placements.items() if job not in more}
        return replace(plan, placements=given, waiting={**plan.waiting, **late})


def _late(plan: Plan, snapshot: Snapshot, settings: PlanSettings) -> dict[JobId, Reason]:
    """The starts to put off, and why."""
    used = [_Used(limit, plan, snapshot) for limit in _contested(plan, snapshot)]
    late: dict[JobId, Reason] = {}
    if not used:
        return late
    for job in sorted(queue(snapshot, settings).jobs, key=lambda job: -job.tier):
        place = plan.placements.get(job.id)
        if job.running or not place:
            continue
        full = next((one for one in used if not one.leaves(job, place.gpus)), None)
        if full is not None:
            late[job.id] = _next_plan(job, full.limit)
            continue
        for one in used:
            one.start(job, place.gpus)
    return late


def _contested(plan: Plan, snapshot: Snapshot) -> list[Limit]:
    """The limits that a job uses up more in the plan than now, without being bound."""
    if not any(limit.exempt for limit in snapshot.limits):
        return []
    running = {job.id: job.running.gpus for job in snapshot.jobs}
    more = {job for job, place in plan.placements.items() if place.gpus > running[job]}
    return [limit for limit in snapshot.limits if not limit.exempt.isdisjoint(more)]


class _Used:
    """What a plan's jobs use of a limit: at first those that run, and then those that start."""

    def __init__(self, limit: Limit, plan: Plan, snapshot: Snapshot) -> None:
        self.limit = limit
        self._gpus = self._count = 0
        self._starts = False  # jobs of the limit start, which Slurm may refuse
        stays = {job.id: job.running for job in staying_jobs(snapshot)}
        for job in snapshot.jobs:
            place = plan.placements.get(job.id) or stays.get(job.id)
            if job.running and place:
                self._add(job, place)

    def _add(self, job: Job, place: Allocation) -> None:
        if job.id in self.limit.jobs:
            self._gpus += self.limit.taken(job.id, place.gpus)
            self._count += 1
            self._starts |= place != job.running
        elif job.id in self.limit.exempt:  # what it has now is subtracted from the limit
            self._gpus += self.limit.taken(job.id, max(0, place.gpus - job.running.gpus))

    def leaves(self, job: Job, gpus: int) -> bool:
        """Whether the waiting job may start beside the others."""
        limit, taken = self.limit, self.limit.taken(job.id, gpus)
        bound = job.id in limit.jobs or (job.id in limit.exempt and self._starts)
        if not bound or (not taken and limit.count is None):
            return True
        return (limit.gpus is None or self._gpus + taken <= limit.gpus) and (
            limit.count is None or self._count + 1 <= limit.count
        )

    def start(self, job: Job, gpus: int) -> None:
        if job.id in self.limit.jobs or job.id in self.limit.exempt:
            self._gpus += self.limit.taken(job.id, gpus)
            self._count += 1
            self._starts |= job.id in self.limit.jobs


def _next_plan(job: Job, limit: Limit) -> Reason:
    if job.id in limit.exempt:
        text = f"it counts towards {limit.name}, which other starts use up"
    else:
        text = f"a job that starts now counts towards {limit.name}"
    return Reason(ReasonCode.LIMIT, f"starts with the next plan: {text}")
