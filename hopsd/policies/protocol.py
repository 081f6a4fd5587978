"""The protocol of a policy."""

from __future__ import annotations

from typing import Protocol

from hopsd.model.plan import Plan, PlanSettings, Snapshot


class Policy(Protocol):
    """Pure: the same snapshot and settings give the same plan, but for the clock's limit."""

    def __call__(self, snapshot: Snapshot, settings: PlanSettings) -> Plan: ...
