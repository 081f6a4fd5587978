"""A wrapper that removes from any policy's plans what a job's rules or a site's limits forbid."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from hopsd.core.placement.ledger import Ledger, grant_in_order
from hopsd.core.queue.competing import competes, competing_jobs, ledger_of
from hopsd.model.allocation import Allocation
from hopsd.model.ids import JobId
from hopsd.model.job import Job
from hopsd.model.plan import Plan, PlanSettings, Snapshot
from hopsd.model.reason import Reason, ReasonCode
from hopsd.model.rules import ANYWHERE, Limit
from hopsd.policies.placing import Servers
from hopsd.policies.wrapper import Wrapper

_BROKEN = Reason(
    ReasonCode.LOST_TO_OTHERS,
    "the place that the policy chose breaks its rules, a limit, or takes cores or memory of others",
)


class WithinRules(Wrapper):
    """A policy whose plans are stripped of forbidden placements.

    Policies other than hops only consider GPUs and what a single job could take of each server, so
    two placements may need the same cores or exceed a limit together. Jobs that stay come first,
    then those of the window in its order. A job with a forbidden placement gets the fastest one
    left, so that it does not starve if the policy chooses the same placement every time.

    Starts of a plan reach Slurm in any order. So a job that uses a limit up without being bound by
    it starts in the next plan if jobs before it start now and leave too little for both; jobs
    behind it get what it leaves. None stops for jobs that are held back so.
    """

    def __call__(self, snapshot: Snapshot, settings: PlanSettings) -> Plan:
        plan = self._policy(snapshot, settings)
        return plan if unruled(snapshot) else kept_within(plan, snapshot)


def unruled(snapshot: Snapshot) -> bool:
    """Whether no job of the snapshot has a rule, and no limit is in force."""
    return not snapshot.limits and all(job.rules == ANYWHERE for job in snapshot.jobs)


def kept_within(plan: Plan, snapshot: Snapshot) -> Plan:
    """``plan`` without forbidden placements; a job that loses its place gets another or waits."""
    first = snapshot.round.first
    jobs = {job.id: job for job in snapshot.jobs}
    still = [j for j in plan.placements if jobs[j].running and not competes(jobs[j], first=first)]
    given = {j: a for j, a in plan.placements.items() if j not in still}
    rank = {job: i for i, job in enumerate((*plan.window, *plan.adjusted))}
    order = sorted(given, key=lambda j: (given[j] != jobs[j].running, rank.get(j, len(rank)), j))
    ledger = ledger_of(snapshot)
    kept = grant_in_order(ledger, ((jobs[job], given[job]) for job in order))
    if len(kept) == len(given):
        return plan
    shared = _used_up_by_exempt(snapshot, given.keys() - kept.keys())
    if stopped := _stopped(snapshot, shared, given):
        ledger, kept = _beside(stopped, shared, snapshot, ledger, kept)
    waits = {j: x.name for x in shared for j in x.exempt & given.keys() - kept.keys()}
    for job in order:
        if job in kept or job in waits:
            continue
        if found := _elsewhere(jobs[job], given[job], ledger, snapshot):
            ledger.take(jobs[job], found)
            kept[job] = found
    placements = {**{j: plan.placements[j] for j in still}, **kept}
    lost = {j: _next(waits[j]) if j in waits else _BROKEN for j in given if j not in kept}
    idle = sum(a.gpus for a in given.values()) - sum(a.gpus for a in kept.values())
    reasons = {job: reason for job, reason in plan.waiting.items() if job not in placements}
    return replace(
        plan,
        placements=placements,
        waiting={**reasons, **lost},
        fragments=max(0, plan.fragments + idle),
    )


def _used_up_by_exempt(snapshot: Snapshot, lost: Collection[JobId]) -> list[Limit]:
    """The limits with exempt jobs for which some of the ``lost`` may have been refused."""
    return [x for x in snapshot.limits if x.exempt and not (x.jobs | x.exempt).isdisjoint(lost)]


def _stopped(
    snapshot: Snapshot, limits: Sequence[Limit], given: Mapping[JobId, Allocation]
) -> list[Job]:
    """Running jobs of ``limits`` that a plan stops or moves."""
    bound = {job for limit in limits for job in limit.jobs}
    return [
        job
        for job in competing_jobs(snapshot)
        if job.running and job.id in bound and given.get(job.id) != job.running
    ]


def _beside(
    stopped: Sequence[Job],
    limits: Sequence[Limit],
    snapshot: Snapshot,
    ledger: Ledger,
    kept: Mapping[JobId, Allocation],
) -> tuple[Ledger, dict[JobId, Allocation]]:
    """What was ``kept``, with the ``stopped`` where they run: in whose place others are held back.

    The kept ones go elsewhere for that if they can with as many GPUs, and those that ``limits`` do
    not bind start in the next plan. Where that is not enough, only those stay whose GPUs are left.
    """
    jobs = {job.id: job for job in snapshot.jobs}
    own = [job for job in stopped if job.id not in kept]
    again = ledger_of(snapshot)
    stays = [(jobs[j], a) for j, a in kept.items() if a == jobs[j].running]
    found = grant_in_order(again, [*stays, *((job, job.running) for job in own)])
    for job, place in kept.items():
        if job in found:
            continue
        if not again.may(jobs[job], place):
            if any(job in x.exempt for x in limits) and not again.within_limits(jobs[job], place):
                continue
            other = _elsewhere(jobs[job], place, again, snapshot)
            if other is None or other.gpus < place.gpus:
                more = grant_in_order(ledger, ((job, job.running) for job in own))
                return ledger, {**kept, **more}
            found[job] = other
        else:
            found[job] = place
        again.take(jobs[job], found[job])
    return again, found


def _next(limit: str) -> Reason:
    text = f"starts after the jobs that start now: it is not bound by {limit}, but uses it up"
    return Reason(ReasonCode.LIMIT, text)


def _elsewhere(
    job: Job, wanted: Allocation, ledger: Ledger, snapshot: Snapshot
) -> Allocation | None:
    """The fastest place that is left for as many GPUs as the policy wanted, or else for fewer."""
    servers = Servers(snapshot, ledger.left())
    for gpus in sorted((r for r in job.reqs if r <= wanted.gpus), reverse=True):
        found = servers.fastest(job, gpus)
        if found is not None and ledger.may(job, found):
            return found
    return None
