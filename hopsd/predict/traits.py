"""Describes policies for predictions: their order, and what they may do to running jobs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from hopsd.model.plan import PriorityName


class Ranking(StrEnum):
    """The quantity by which a policy ranks jobs."""

    LATENCY_RATIO = "latency_ratio"
    SUBMISSION = "submission"
    AGE = "age"
    REMAINING = "remaining"
    ATTAINED = "attained"
    WORK = "work"


@dataclass(frozen=True, slots=True)
class Traits:
    """Traits of a policy. ``elastic``: jobs get any of their GPU counts, else the median of those
    that fit. ``preempts``: running jobs compete again when a round begins, or also earlier if
    ``ends_early``. ``overtakes``: a job may start before one ahead of it that does not fit; with
    ``reserves`` only if it does not delay that job (backfill). ``power`` is the exponent of a job's
    speed in the objective that the policy maximises.
    """

    order: Ranking
    elastic: bool = False
    preempts: bool = False
    ends_early: bool = False
    overtakes: bool = True
    reserves: bool = False
    power: float = 1.0


_HOPS = Traits(Ranking.LATENCY_RATIO, elastic=True, preempts=True)
_PLUS = Traits(Ranking.WORK, elastic=True, preempts=True, ends_early=True, power=0.65)

_BY_POLICY = {
    "hops": _HOPS,
    "hops+": _PLUS,
    "hops-las": replace(_HOPS, order=Ranking.ATTAINED),
    "hops-sjf": replace(_HOPS, order=Ranking.AGE),
    "hops-srtf": replace(_HOPS, order=Ranking.REMAINING),
    "hops-fifo": replace(_HOPS, order=Ranking.SUBMISSION),
    "fifo": Traits(Ranking.SUBMISSION, overtakes=False),
    "sjf": Traits(Ranking.AGE),
    "srtf": Traits(Ranking.REMAINING, preempts=True),
    "srpt": Traits(Ranking.REMAINING, preempts=True),
    "las": Traits(Ranking.ATTAINED, preempts=True),
    "tiresias": Traits(Ranking.ATTAINED, preempts=True),
    "slurm": Traits(Ranking.SUBMISSION, reserves=True),
    "slurm-multifactor": Traits(Ranking.SUBMISSION, reserves=True),
}

_BY_PRIORITY = {
    PriorityName.FIFO: Ranking.SUBMISSION,
    PriorityName.SJF: Ranking.AGE,
    PriorityName.SRTF: Ranking.REMAINING,
    PriorityName.LAS: Ranking.ATTAINED,
}


def traits_of(policy: str, priority: PriorityName = PriorityName.LATENCY_RATIO) -> Traits:
    """Traits of ``policy``. One that is not listed here is treated as ``hops``, whose order is set
    by ``priority``; calibration corrects the resulting mean error.
    """
    if policy in ("hops", "") or policy not in _BY_POLICY:
        return replace(_HOPS, order=_BY_PRIORITY.get(priority, Ranking.LATENCY_RATIO))
    return _BY_POLICY[policy]
