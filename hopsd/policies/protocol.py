"""The interface of a policy."""

from __future__ import annotations

from typing import Protocol

from hopsd.model.plan import Plan, PlanSettings, Snapshot


class Policy(Protocol):
    """A pure function: the same snapshot and settings give the same plan, time limits aside.

    Optional attributes of type bool tell when to call it. ``ends_early``: a round ends, and another
    takes its rest, where GPUs become idle that no waiting job gets, or for a short job
    (``round/window.py``). The others are the simulator's. ``only_first``: only at a
    round's start. ``every_first``: every plan is a first one, so it preempts at any time.
    ``settles``: a second plan right after one of its plans would place nothing. ``steady``: nor
    would any later plan until something happens, even at a round's start.
    """

    def __call__(self, snapshot: Snapshot, settings: PlanSettings) -> Plan: ...
