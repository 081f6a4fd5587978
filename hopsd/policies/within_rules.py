"""A wrapper that removes from any policy's plans what a job's rules or a site's limits forbid."""

from __future__ import annotations

from dataclasses import replace

from hopsd.core.placement.ledger import Ledger, grant_in_order
from hopsd.core.queue.competing import competes, ledger_of
from hopsd.model.allocation import Allocation
from hopsd.model.job import Job
from hopsd.model.plan import Plan, PlanSettings, Snapshot
from hopsd.model.reason import Reason, ReasonCode
from hopsd.model.rules import ANYWHERE
from hopsd.policies.placing import Servers
from hopsd.policies.wrapper import Wrapper

_BROKEN_RULE = Reason(
    ReasonCode.LOST_TO_OTHERS,
    "the policy's placement breaks the job's rules or a limit, or needs others' cores or memory",
)


class WithinRules(Wrapper):
    """A policy whose plans are stripped of forbidden placements.

    Policies other than hops only consider GPUs and what a single job could take of each server, so
    two placements may need the same cores or exceed a limit together. Jobs that stay are granted
    first, then those of the window in its order. A job with a forbidden placement gets the fastest
    remaining one, so that it does not starve if the policy chooses the same placement every time.
    """

    def __call__(self, snapshot: Snapshot, settings: PlanSettings) -> Plan:
        plan = self._policy(snapshot, settings)
        return plan if has_no_rules(snapshot) else kept_within(plan, snapshot)


def has_no_rules(snapshot: Snapshot) -> bool:
    """Whether no job of the snapshot has a rule, and no limit is in force."""
    return not snapshot.limits and all(job.rules == ANYWHERE for job in snapshot.jobs)


def kept_within(plan: Plan, snapshot: Snapshot) -> Plan:
    """Remove forbidden placements from ``plan``; jobs that lose theirs get another or wait."""
    first = snapshot.round.first
    jobs = {job.id: job for job in snapshot.jobs}
    pinned_jobs = {
        j for j in plan.placements if jobs[j].running and not competes(jobs[j], first=first)
    }
    requests = {j: a for j, a in plan.placements.items() if j not in pinned_jobs}
    rank = {job: i for i, job in enumerate((*plan.window, *plan.adjusted))}
    order = sorted(
        requests, key=lambda j: (requests[j] != jobs[j].running, rank.get(j, len(rank)), j)
    )
    ledger = ledger_of(snapshot)
    grants = grant_in_order(ledger, ((jobs[job], requests[job]) for job in order))
    if len(grants) == len(requests):
        return plan
    for job in order:
        if job not in grants and (
            alternative := _alternative(jobs[job], requests[job], ledger, snapshot)
        ):
            ledger.take(jobs[job], alternative)
            grants[job] = alternative
    placements = {
        j: grants.get(j, a) for j, a in plan.placements.items() if j in grants or j in pinned_jobs
    }
    reasons = {j: _BROKEN_RULE for j in requests if j not in grants}
    idle = sum(a.gpus - (grants[j].gpus if j in grants else 0) for j, a in requests.items())
    return replace(
        plan,
        placements=placements,
        waiting={**plan.waiting, **reasons},
        fragments=plan.fragments + idle,
    )


def _alternative(
    job: Job, preference: Allocation, ledger: Ledger, snapshot: Snapshot
) -> Allocation | None:
    """The fastest remaining place for as many GPUs as the policy wanted, or else for fewer."""
    servers = Servers(snapshot, ledger.remaining_resources())
    for gpus in sorted((r for r in job.reqs if r <= preference.gpus), reverse=True):
        alternative = servers.fastest(job, gpus)
        if alternative is not None and ledger.may(job, alternative):
            return alternative
    return None
