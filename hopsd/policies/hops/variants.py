"""Hops with priorities other than the latency ratio (sections 4.4 and 4.5 of the paper)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hopsd.model.plan import FTF_LAMBDA, Plan, PlanSettings, PriorityName, Snapshot
from hopsd.policies.hops import policy as hops


@dataclass(frozen=True, slots=True)
class Hops:
    """The Hops policy with a given priority; if ``lam`` is None, the settings' value is used."""

    priority: PriorityName
    lam: float | None = None

    def __call__(self, snapshot: Snapshot, settings: PlanSettings) -> Plan:
        lam = settings.lam if self.lam is None else self.lam
        return hops.plan(snapshot, replace(settings, priority=self.priority, lam=lam))


ftf = Hops(PriorityName.FTF, FTF_LAMBDA)
las = Hops(PriorityName.LAS)
sjf = Hops(PriorityName.SJF)
srtf = Hops(PriorityName.SRTF)
fifo = Hops(PriorityName.FIFO)
