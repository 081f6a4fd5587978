"""A wrapper that postpones starts which Slurm might refuse after other starts of the plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hopsd.core.placement.ledger import grant_in_order
from hopsd.core.placement.remaining_limits import RemainingLimit
from hopsd.core.queue.competing import competes, ledger_of, staying_jobs
from hopsd.core.queue.priority import queue
from hopsd.model.allocation import Allocation
from hopsd.model.ids import JobId
from hopsd.model.job import Job
from hopsd.model.plan import Plan, PlanSettings, Snapshot
from hopsd.model.reason import Reason, ReasonCode
from hopsd.model.rules import Limit
from hopsd.policies.wrapper import Wrapper


class Staggered(Wrapper):
    """A policy whose plans' starts may reach Slurm in any order.

    A job that is not bound by a limit may still use it up (``Limit.exempt``): once it runs, it
    counts for the jobs that are bound. If a plan starts both kinds of jobs and the limit has too
    little left for all, those later in the queue are postponed until the next plan, which follows
    soon; their GPUs stay free for them until then. A running job that was to stop for one of them
    stays if it can. Running jobs that a plan moves or lets grow are not postponed.
    """

    def __call__(self, snapshot: Snapshot, settings: PlanSettings) -> Plan:
        plan = self._policy(snapshot, settings)
        limit_states = [
            _Usage(limit, plan, snapshot) for limit in _contested_limits(plan, snapshot)
        ]
        if not limit_states:
            return plan
        jobs = {job.id: job for job in snapshot.jobs}
        # The queue holds modified copies of overdue jobs; take those of the snapshot.
        queue_order = sorted(queue(snapshot, settings).jobs, key=lambda job: -job.tier)
        order = [jobs[job.id] for job in queue_order]
        late_starts: dict[JobId, Reason] = {}
        for job in order:
            place = plan.placements.get(job.id)
            if job.running or not place:
                continue
            full = next(
                (
                    limit_state
                    for limit_state in limit_states
                    if not limit_state.leaves(job, place.gpus)
                ),
                None,
            )
            if full is not None:
                late_starts[job.id] = _next_plan(job, full.limit)
                continue
            for limit_state in limit_states:
                limit_state.add(job, place)
        return _remove_starts(late_starts, plan, snapshot, order) if late_starts else plan


def _contested_limits(plan: Plan, snapshot: Snapshot) -> list[Limit]:
    """The limits of which an exempt job uses more under the plan than now."""
    if not any(limit.exempt for limit in snapshot.limits):
        return []
    running = {job.id: job.running.gpus for job in snapshot.jobs}
    growing_jobs = {job for job, place in plan.placements.items() if place.gpus > running[job]}
    return [limit for limit in snapshot.limits if not limit.exempt.isdisjoint(growing_jobs)]


class _Usage:
    """What a plan's jobs use of a limit: first the running ones, then those that are added."""

    def __init__(self, limit: Limit, plan: Plan, snapshot: Snapshot) -> None:
        self.limit, self._allowance = limit, RemainingLimit(limit)
        self._gpus = self._count = 0
        self._starts = False  # whether jobs start that the limit binds, so Slurm may refuse them
        stays = {job.id: job.running for job in staying_jobs(snapshot)}
        for job in snapshot.jobs:
            place = plan.placements.get(job.id) or stays.get(job.id)
            if job.running and place:
                self.add(job, place)

    def add(self, job: Job, place: Allocation) -> None:
        """Count the job with its place in the plan."""
        if job.id in self.limit.jobs:
            self._gpus += self.limit.amount(job.id, place.gpus)
            self._count += 1
            self._starts |= place != job.running
        elif job.id in self.limit.exempt:  # its present GPUs are already subtracted from the limit
            self._gpus += self.limit.amount(job.id, max(0, place.gpus - job.running.gpus))
            self._count += not job.running

    def leaves(self, job: Job, gpus: int) -> bool:
        """Whether the waiting job may start in addition to the jobs counted so far."""
        limit, amount = self.limit, self.limit.amount(job.id, gpus)
        bound = job.id in limit.jobs or (job.id in limit.exempt and self._starts)
        if not bound or (not amount and limit.count is None):
            return True
        return self._allowance.leaves(self._gpus + amount, self._count + 1)


def _next_plan(job: Job, limit: Limit) -> Reason:
    if job.id in limit.exempt:
        text = f"it counts towards {limit.name}, which other starts use up"
    else:
        text = f"a job that starts now counts towards {limit.name}"
    return Reason(ReasonCode.LIMIT, f"postponed until the next plan: {text}")


def _remove_starts(
    late_starts: Mapping[JobId, Reason], plan: Plan, snapshot: Snapshot, order: Sequence[Job]
) -> Plan:
    """Remove the starts in ``late_starts`` from ``plan``; jobs that run on their GPUs stay."""
    placements = {job: place for job, place in plan.placements.items() if job not in late_starts}
    ledger, first = ledger_of(snapshot), snapshot.round.first
    for job in snapshot.jobs:
        if job.id in placements and competes(job, first=first):
            ledger.take(job, placements[job.id])
    stopping_jobs = (job for job in order if job.running and job.id not in placements)
    stays = grant_in_order(ledger, ((job, job.running) for job in stopping_jobs))
    waiting = {job: reason for job, reason in plan.waiting.items() if job not in stays}
    put_off = sum(plan.placements[job].gpus for job in late_starts)
    return replace(
        plan,
        placements={**placements, **stays},
        waiting={**waiting, **late_starts},
        fragments=max(0, plan.fragments + put_off - sum(a.gpus for a in stays.values())),
    )
