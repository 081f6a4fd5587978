"""The interface of a policy."""

from __future__ import annotations

from typing import Protocol

from hopsd.model.plan import Plan, PlanSettings, Snapshot


class Policy(Protocol):
    """A pure function: the same snapshot and settings give the same plan, time limits aside.

    It may have attributes of type bool that tell the simulator when to ask it. ``only_first``: at
    a round's start alone. ``every_first``: every plan is a first one, it preempts at any time.
    ``settles``: right after one of its plans another one would place nothing. ``steady``: nor
    would one as long as nothing happens, at a round's start neither.
    """

    def __call__(self, snapshot: Snapshot, settings: PlanSettings) -> Plan: ...
