"""The interface of a policy."""

from __future__ import annotations

from typing import Protocol

from hopsd.model.plan import Plan, PlanSettings, Snapshot


class Policy(Protocol):
    """A pure function: the same snapshot and settings give the same plan, time limits aside.

    Optional attributes of type bool say when to call the policy. With ``ends_early``, a round ends
    early and another takes the rest of its time if GPUs become idle that no waiting job gets, or
    for a short job (``round/window.py``). Only the simulator reads the others. ``only_first``: call
    it only at a round's start. ``every_first``: every plan is a first one, so it preempts anytime.
    ``settles``: a second plan right after one of its plans would place nothing. ``steady``: nor
    would any later plan until something happens, even at a round's start.
    """

    def __call__(self, snapshot: Snapshot, settings: PlanSettings) -> Plan: ...
