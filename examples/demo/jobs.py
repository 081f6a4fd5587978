"""The jobs that the demo submits: each one shows something that hops does."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DemoJob:
    """A job of the demo. ``wave`` is 0 if submitted at once, 1 when those jobs train, and 2 when
    all workloads are known. ``samples`` is the total to train on.
    """

    name: str
    model: str
    reqs: str
    samples: int
    shows: str
    wave: int = 0
    extra: str = ""

    @property
    def comment(self) -> str:
        parts = [f"hops:reqs={self.reqs}", f"samples={self.samples}", "batch=32"]
        return ";".join([*parts, f"workload={self.model}", *filter(None, [self.extra])])


PACE_SECONDS = 0.1
"""Minimum length of an iteration, so that even a made-up GPU has a meaningful speed."""

JOBS = (
    DemoJob("rigid", "mlp", "2", 14_000, "two GPUs, no more, no less"),
    DemoJob("elastic", "conv", "1,2,4", 27_000, "takes one, two or four GPUs", extra="lr=0.05"),
    DemoJob("range", "mlp", "1-4", 14_000, "any count from one to four", extra="num=3"),
    DemoJob("keeps", "conv", "1,2", 14_000, "is never moved", extra="preempt=no"),
    DemoJob("wide", "wide", "1,2", 6_000, "many parameters: sensitive to spreading", wave=1),
    DemoJob("spread", "mlp", "3", 10_000, "larger than a server: spreads over two", wave=1),
    DemoJob(
        "scaled",
        "transformer",
        "1,2",
        6_000,
        "learning rate grows with GPUs",
        wave=1,
        extra="lr=0.02@1;lr_rule=sqrt",
    ),
    DemoJob("short", "mlp", "1,2", 4_000, "short: its wait soon outweighs long ones", wave=1),
    DemoJob("late", "conv", "8", 6_000, "wants all rtx3090: others move at the next round", wave=1),
    DemoJob("again", "conv", "1,2", 4_000, "a known workload: is not measured again", wave=2),
)
