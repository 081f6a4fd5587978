"""Back-off: a job that Slurm did not start is left out for a while, so that others get its GPUs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hopsd.model.ids import JobId, NodeName
from hopsd.model.reason import Reason, ReasonCode
from hopsd.model.step import OutcomeStatus, StepOutcome

FIRST_REST_SECONDS = 60.0
LONGEST_REST_SECONDS = 3600.0

# Slurm's reasons (22.05 to 26.05) that are the same on every node.
_LIMITS = ("Account", "Assoc", "Invalid", "Licenses", "MaxMemPerLimit", "Partition", "QOS")


@dataclass(frozen=True, slots=True)
class Setback:
    """A job's back-off: ``failures`` in a row, left out of plans until ``until``; ``error``: the
    last one.

    ``defect``: hops could not plan with the job (otherwise Slurm did not start it). ``shunned``:
    nodes where Slurm did not start it, each with the time until which plans avoid it.
    """

    failures: int
    until: float
    error: str
    defect: bool = False
    shunned: Mapping[NodeName, float] = field(default_factory=dict)


def after(
    setbacks: Mapping[JobId, Setback], outcomes: Iterable[StepOutcome], now: float
) -> dict[JobId, Setback]:
    """``setbacks`` updated by the outcomes of steps; a success clears a job's setback.

    The first failure may be chance (GPUs taken between reading and start), so the job is tried
    again at once, on other nodes. Every further failure doubles the back-off. If Slurm names a
    limit of the job's user, other nodes do not help, and it backs off at once. Jobs that did not
    leave their old nodes take nothing from others and do not count, nor do jobs held by a person.
    """
    left = {job: s for job, s in setbacks.items() if now < s.until + LONGEST_REST_SECONDS}
    for outcome in outcomes:
        job = outcome.step.job
        if outcome.status is not OutcomeStatus.FAILED:
            left.pop(job, None)
        elif _counts(outcome):
            left[job] = _failed_again(left.get(job), outcome, now)
    return left


def _counts(outcome: StepOutcome) -> bool:
    wanted = bool(outcome.step.target) and not outcome.step.profiling and not outcome.actual
    return wanted and not outcome.reason.startswith("JobHeld")


def _failed_again(before: Setback | None, outcome: StepOutcome, now: float) -> Setback:
    failures = before.failures + 1 if before else 1
    if outcome.reason.startswith(_LIMITS):
        failures = max(failures, 2)
        return Setback(failures, now + _rest_seconds(failures), outcome.error)
    seen = before.shunned if before else {}
    until = now + _rest_seconds(failures + 1)
    shunned = {node: at for node, at in seen.items() if now < at}
    shunned |= dict.fromkeys(outcome.step.target.nodes, until)
    return Setback(failures, now + _rest_seconds(failures), outcome.error, shunned=shunned)


def shunned(setbacks: Mapping[JobId, Setback], now: float) -> dict[JobId, frozenset[NodeName]]:
    """Nodes to avoid for each job, because Slurm did not start it there."""
    found = {
        job: frozenset(node for node, until in setback.shunned.items() if now < until)
        for job, setback in setbacks.items()
    }
    return {job: nodes for job, nodes in found.items() if nodes}


def after_defects(
    setbacks: Mapping[JobId, Setback], defects: Mapping[JobId, str], now: float
) -> dict[JobId, Setback]:
    """``setbacks`` plus the jobs that could not be planned; each backs off at once."""
    failures = {job: setbacks[job].failures + 1 if job in setbacks else 2 for job in defects}
    return {
        **setbacks,
        **{
            job: Setback(failures[job], now + _rest_seconds(failures[job]), error, defect=True)
            for job, error in defects.items()
        },
    }


def resting(setbacks: Mapping[JobId, Setback], now: float) -> dict[JobId, Reason]:
    """The jobs to leave out of the plan now, each with the reason its user sees."""
    return {
        job: Reason(
            ReasonCode.ERROR,
            f"{_what(setback)}, is tried again in {math.ceil(setback.until - now)} s:"
            f" {setback.error}",
        )
        for job, setback in setbacks.items()
        if now < setback.until
    }


def _what(setback: Setback) -> str:
    if setback.defect:
        return "set aside, since hops cannot plan with it"
    return f"could not be started {setback.failures} times in a row"


def _rest_seconds(failures: int) -> float:
    if failures < 2:
        return 0.0
    doublings = min(failures - 2, 10)
    return min(FIRST_REST_SECONDS * 2.0**doublings, LONGEST_REST_SECONDS)
