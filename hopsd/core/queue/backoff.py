"""Back-off: for a while, plans skip a job that Slurm did not start, so that others get its GPUs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hopsd.model.ids import JobId, NodeName
from hopsd.model.reason import Reason, ReasonCode
from hopsd.model.step import OutcomeStatus, StepOutcome

FIRST_BACKOFF_SECONDS = 60.0
MAX_BACKOFF_SECONDS = 3600.0

# Slurm's reasons (22.05 to 26.05) that are the same on every node.
_LIMITS = ("Account", "Assoc", "Invalid", "Licenses", "MaxMemPerLimit", "Partition", "QOS")


@dataclass(frozen=True, slots=True)
class Backoff:
    """A job's back-off after ``failures`` in a row: plans skip the job until ``until``.

    ``error``: the error of the last failure. ``defect``: hops could not plan the job (otherwise
    Slurm did not start it). ``avoided``: the nodes where Slurm did not start the job, each with the
    time until which plans avoid it.
    """

    failures: int
    until: float
    error: str
    defect: bool = False
    avoided: Mapping[NodeName, float] = field(default_factory=dict)


def after_outcomes(
    backoffs: Mapping[JobId, Backoff], outcomes: Iterable[StepOutcome], now: float
) -> dict[JobId, Backoff]:
    """Update ``backoffs`` with the outcomes of steps; a success clears a job's back-off.

    The first failure may be chance (GPUs taken between reading and start), so the job is tried
    again at once, on other nodes. Every further failure doubles the back-off. If Slurm names a
    limit of the job's user, other nodes do not help, and the job backs off at once. Jobs that did
    not leave their old nodes block nobody and do not count; neither do jobs that a person holds,
    nor postponed starts.
    """
    updated_backoffs = {
        job: b for job, b in backoffs.items() if now < b.until + MAX_BACKOFF_SECONDS
    }
    for outcome in outcomes:
        job = outcome.step.job
        if outcome.status is OutcomeStatus.FAILED:
            if _counts(outcome):
                updated_backoffs[job] = _failed_again(updated_backoffs.get(job), outcome, now)
        elif outcome.status not in (OutcomeStatus.PUT_OFF, OutcomeStatus.UNDER_WAY):
            updated_backoffs.pop(job, None)
    return updated_backoffs


def _counts(outcome: StepOutcome) -> bool:
    placeable = bool(outcome.step.target) and not outcome.step.profiling and not outcome.actual
    return placeable and not outcome.reason.startswith("JobHeld")


def _failed_again(previous: Backoff | None, outcome: StepOutcome, now: float) -> Backoff:
    failures = previous.failures + 1 if previous else 1
    if outcome.reason.startswith(_LIMITS):
        failures = max(failures, 2)
        return Backoff(failures, now + _backoff_seconds(failures), outcome.error)
    avoided_so_far = previous.avoided if previous else {}
    expiry = now + _backoff_seconds(failures + 1)
    avoided_nodes = {node: expiry for node, expiry in avoided_so_far.items() if now < expiry}
    avoided_nodes |= dict.fromkeys(outcome.step.target.nodes, expiry)
    return Backoff(failures, now + _backoff_seconds(failures), outcome.error, avoided=avoided_nodes)


def avoided_nodes(
    backoffs: Mapping[JobId, Backoff], now: float
) -> dict[JobId, frozenset[NodeName]]:
    """Return the nodes to avoid for each job, because Slurm did not start it there."""
    by_job = {
        job: frozenset(node for node, expiry in backoff.avoided.items() if now < expiry)
        for job, backoff in backoffs.items()
    }
    return {job: nodes for job, nodes in by_job.items() if nodes}


def with_avoided(
    waiting: Mapping[JobId, Reason], backoffs: Mapping[JobId, Backoff], now: float
) -> dict[JobId, Reason]:
    """Name the nodes that a job avoids for a while in its reason, if it fits nowhere else."""
    reasons = dict(waiting)
    for job, nodes in avoided_nodes(backoffs, now).items():
        if job in reasons and reasons[job].code is ReasonCode.NO_CONFIGURATION:
            backoff = backoffs[job]
            soonest = min(backoff.avoided[node] for node in nodes)
            text = (
                f"Slurm did not start it on {', '.join(sorted(nodes))}, where it is tried again in"
                f" {math.ceil(soonest - now)} s; no other node has a place for it: {backoff.error}"
            )
            reasons[job] = Reason(ReasonCode.ERROR, text)
    return reasons


def after_defects(
    backoffs: Mapping[JobId, Backoff], defects: Mapping[JobId, str], now: float
) -> dict[JobId, Backoff]:
    """Return ``backoffs`` plus the jobs that hops could not plan; each backs off at once."""
    failures = {job: backoffs[job].failures + 1 if job in backoffs else 2 for job in defects}
    return {
        **backoffs,
        **{
            job: Backoff(failures[job], now + _backoff_seconds(failures[job]), error, defect=True)
            for job, error in defects.items()
        },
    }


def backing_off(backoffs: Mapping[JobId, Backoff], now: float) -> dict[JobId, Reason]:
    """Return the jobs that this plan skips, each with the reason that its user sees."""
    return {
        job: Reason(
            ReasonCode.ERROR,
            f"{_description(backoff)}; it is tried again in {math.ceil(backoff.until - now)} s:"
            f" {backoff.error}",
        )
        for job, backoff in backoffs.items()
        if now < backoff.until
    }


def _description(backoff: Backoff) -> str:
    if backoff.defect:
        return "set aside, since hops cannot plan with it"
    return f"could not be started {backoff.failures} times in a row"


def _backoff_seconds(failures: int) -> float:
    if failures < 2:
        return 0.0
    doublings = min(failures - 2, 10)
    return min(FIRST_BACKOFF_SECONDS * 2.0**doublings, MAX_BACKOFF_SECONDS)
