"""Hare's schedulers by name: each turns a relaxation into a schedule with a proven bound."""

from __future__ import annotations

from collections.abc import Callable

from hopsd.policies.hare.dispatch import dispatch
from hopsd.policies.hare.lists import algorithm_1, algorithm_1_eft
from hopsd.policies.hare.relaxation import INTERVALS, RelaxedSequence, relax
from hopsd.policies.hare.tasks import Instance, Schedule

Scheduler = Callable[[Instance, RelaxedSequence], Schedule]

SCHEDULERS: dict[str, Scheduler] = {
    "hare": algorithm_1,
    "hare-eft": algorithm_1_eft,
    "hare-dispatch": dispatch,
}


def schedule(instance: Instance, scheduler: Scheduler, intervals: int = INTERVALS) -> Schedule:
    """Solve the relaxation, then schedule."""
    return scheduler(instance, relax(instance, intervals))
