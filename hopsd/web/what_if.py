"""Computes what a plan would be if a node were emptied, or a job had asked for other GPU counts.

Two plans are made from the snapshot of the last round, with and without the change. This runs in a
separate process, so the daemon does not wait for it, and it changes nothing in Slurm.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from hopsd.core.placement.available import kept_to_counts
from hopsd.core.submission.comment import PREFIX, parse
from hopsd.errors import HopsError, InputError
from hopsd.model.allocation import Allocation
from hopsd.model.ids import JobId, NodeName, job_order
from hopsd.model.job import Job
from hopsd.model.plan import Plan, PlanSettings, RoundInfo, Snapshot
from hopsd.policies.apart import plans_apart

PLAN_SECONDS = 5.0
"""Maximum time limit of each of the two plans."""
SECONDS = 60.0
"""Time for both plans, including the start of the process, which is killed after it."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Where a job would run under each plan; empty if nowhere."""

    job: JobId
    user: str
    now: Mapping[NodeName, int]
    then: Mapping[NodeName, int]
    reason: str


@dataclass(frozen=True, slots=True)
class PlanComparison:
    """``at`` is when the snapshot was taken, in seconds since 1970. ``now`` and ``then`` are the
    figures of the plan without and with the change: objective, idle GPUs and waiting jobs.
    """

    at: float
    differences: tuple[Difference, ...]
    now: Mapping[str, float]
    then: Mapping[str, float]


def without_node(snapshot: Snapshot, node: str) -> Snapshot:
    """Remove ``node`` from ``snapshot``; jobs that run on it wait, as if they had been stopped.

    Raises:
        InputError: if the snapshot has no such node.
    """
    if node not in {other_node.name for other_node in snapshot.nodes}:
        raise InputError(f"node {node[:80]!r}: give one that the last plan could use")
    return replace(
        snapshot,
        nodes=tuple(other_node for other_node in snapshot.nodes if other_node.name != node),
        jobs=tuple(
            replace(job, running=Allocation(), running_since=None, preemptible=True)
            if job.running.on(NodeName(node))
            else job
            for job in snapshot.jobs
        ),
    )


def with_reqs(snapshot: Snapshot, job: str, reqs: str) -> Snapshot:
    """Give ``job`` other GPU counts, written as in a comment.

    Raises:
        InputError: if the last plan had no such job or could not move it, or ``reqs`` is malformed.
    """
    original = next((candidate for candidate in snapshot.jobs if candidate.id == job), None)
    if original is None:
        raise InputError(f"job {job[:80]!r}: give one that the last plan looked at")
    if original.running and not original.preemptible:
        raise InputError(f"job {job} keeps the GPUs that it has: no plan may move it")
    if ";" in reqs:
        raise InputError(f"reqs {reqs[:80]!r}: give counts as in 1,2,4 or 1-8")
    variant = kept_to_counts(replace(original, reqs=parse(f"{PREFIX}reqs={reqs}").reqs))
    return replace(
        snapshot,
        jobs=tuple(variant if candidate.id == job else candidate for candidate in snapshot.jobs),
    )


class Planner:
    """Compares plans, one question at a time."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._busy = threading.Lock()

    def compare(
        self, snapshot: Snapshot, variant: Snapshot, settings: PlanSettings, round_seconds: float
    ) -> PlanComparison:
        """Plan both as at the beginning of a round, when running jobs compete again.

        Raises:
            HopsError: if another question is being answered, or this one takes too long.
        """
        opens = RoundInfo(first=True, seconds=round_seconds)
        settings = replace(
            settings, time_limit_seconds=min(PLAN_SECONDS, settings.time_limit_seconds)
        )
        if not self._busy.acquire(blocking=False):
            raise HopsError("another question is being answered: ask again in a few seconds")
        try:
            now, variant_plan = plans_apart(
                settings,
                [replace(state, round=opens) for state in (snapshot, variant)],
                self._seconds,
            )
        finally:
            self._busy.release()
        return PlanComparison(
            snapshot.now,
            tuple(_differences(snapshot, variant, now, variant_plan)),
            _figures(snapshot, now),
            _figures(variant, variant_plan),
        )


def _differences(
    snapshot: Snapshot, variant: Snapshot, now: Plan, variant_plan: Plan
) -> Iterator[Difference]:
    after = {job.id: job for job in variant.jobs}
    for job in sorted(snapshot.jobs, key=lambda job: job_order(job.id)):
        places = _place(job, now), _place(after[job.id], variant_plan)
        if places[0] != places[1]:
            reason = variant_plan.waiting.get(job.id)
            text = reason.text if reason is not None and not places[1] else ""
            yield Difference(job.id, job.user, places[0].as_dict(), places[1].as_dict(), text)


def _place(job: Job, plan: Plan) -> Allocation:
    return plan.placements.get(job.id, Allocation() if job.id in plan.waiting else job.running)


def _figures(snapshot: Snapshot, plan: Plan) -> dict[str, float]:
    return {
        "objective": plan.objective,
        "fragments": plan.fragments,
        "waiting": len(plan.waiting),
        "gpus": sum(node.gpus for node in snapshot.nodes),
    }
