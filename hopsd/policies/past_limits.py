"""A wrapper that gives what a job without a place does not use of a limit to those behind it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hopsd.model.ids import JobId
from hopsd.model.plan import Plan, PlanSettings, Snapshot
from hopsd.model.reason import ReasonCode
from hopsd.policies.by_tier import as_lower_tier
from hopsd.policies.wrapper import Wrapper


class PastLimits(Wrapper):
    """Plans once more for jobs that a limit kept out of the window, beside what was placed.

    In the window a job counts in its limits with its smallest requirement. If it gets no place, as
    where others hold all its servers, that part would stay unused with GPUs idle. At the next
    round's start it comes first again. Not under ``paper_exact``.
    """

    def __call__(self, snapshot: Snapshot, settings: PlanSettings) -> Plan:
        plan = self._policy(snapshot, settings)
        left = settings.time_limit_seconds - plan.seconds.get("total", 0.0)
        again = frozenset() if settings.paper_exact else _kept_out_in_vain(plan, snapshot)
        if not again or left <= 0:
            return plan
        beside = as_lower_tier(snapshot, again, plan.placements)
        return _joined(
            plan, self._policy(beside, replace(settings, time_limit_seconds=left)), again
        )


def _kept_out_in_vain(plan: Plan, snapshot: Snapshot) -> frozenset[JobId]:
    """Waiting jobs that share a limit with one of the window that got no place."""
    unplaced = frozenset((*plan.window, *plan.adjusted)) - plan.placements.keys()
    shared = [limit.jobs for limit in snapshot.limits if limit.jobs & unplaced]
    if not plan.fragments or not shared:
        return frozenset()
    return frozenset(
        job.id
        for job in snapshot.jobs
        if not job.running
        and (reason := plan.waiting.get(job.id)) is not None
        and reason.code is ReasonCode.LIMIT
        and any(job.id in jobs for jobs in shared)
    )


def _joined(plan: Plan, second: Plan, again: frozenset[JobId]) -> Plan:
    """``plan`` with what ``second`` tells of ``again``; the objective stays the window's."""
    placed = {job: place for job, place in second.placements.items() if job in again}
    waiting = {**plan.waiting, **{j: r for j, r in second.waiting.items() if j in again}}
    return replace(
        plan,
        placements={**plan.placements, **placed},
        adjusted=(*plan.adjusted, *(job for job in second.window if job in placed)),
        fragments=max(0, plan.fragments - sum(place.gpus for place in placed.values())),
        seconds=dict(Counter(plan.seconds) + Counter(second.seconds)),
        waiting={job: reason for job, reason in waiting.items() if job not in placed},
        jobs={**plan.jobs, **{j: n for j, n in second.jobs.items() if j in again}},
    )
