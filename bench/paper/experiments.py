"""The experiments: one entry per table or figure of the paper."""

from __future__ import annotations

from dataclasses import dataclass

from bench.paper.search import COMBINATIONS, Assumptions
from hopsd.sim.information.knowledge import Knows

SEEDS = (0, 1, 2, 3, 4)


@dataclass(frozen=True, slots=True)
class Case:
    """One simulation. ``gap`` is that of the integer program, ``rate`` the jobs per hour (None: the
    preset's), ``knows`` what the policy knows of the jobs (None: all, as in the paper).
    ``assumptions`` play a part of the preset under these assumptions (None: all of it under the
    usual ones).
    """

    preset: str
    policy: str
    seed: int
    rate: float | None = None
    jobs: int | None = None
    gap: float = 0.01
    knows: Knows | None = None
    assumptions: Assumptions | None = None

    @property
    def name(self) -> str:
        extra = "" if self.rate is None else f"-{self.rate:g}h"
        extra += "" if self.jobs is None else f"-{self.jobs}j"
        extra += "" if self.gap == 0.01 else f"-gap{self.gap:g}"
        extra += "" if self.knows is None else f"-{self.knows}"
        extra += "" if self.assumptions is None else f"-{self.assumptions}"
        return f"{self.preset}-{self.policy}{extra}-{self.seed}"


PAPERS_RIVALS = ("hops", "sia-hops", "gavel-queue")
"""Policies as the Hops paper ran them: Sia with one configuration per requirement, both with hops'
queue."""

OTHER_POLICIES = ("sia", "gavel", "gavel-ftf", "slurm", "fifo", "sjf", "srtf", "las")
DEFAULT_POLICY = "hops+"
"""The daemon's default, which the paper does not have."""

RATES = (30.0, 60.0, 120.0, 300.0, 600.0, 1200.0)
RATE_JOBS = 250

TABLE_3 = [
    Case("paper-64", p, s) for s in SEEDS for p in (*PAPERS_RIVALS, *OTHER_POLICIES, DEFAULT_POLICY)
]
TABLE_4 = [Case("paper-512", p, s) for s in SEEDS for p in PAPERS_RIVALS]
TABLE_4_OTHERS = [Case("paper-512", p, s) for s in SEEDS for p in (*OTHER_POLICIES, DEFAULT_POLICY)]
FTF = [Case("paper-512", "hops-ftf", s) for s in SEEDS]
PRIORITIES = [Case("paper-512", f"hops-{p}", s) for s in SEEDS for p in ("las", "sjf", "srtf")]
ARRIVALS = [
    Case("paper-512", policy, seed, rate, RATE_JOBS)
    for seed in SEEDS
    for rate in RATES
    for policy in PAPERS_RIVALS
]
NO_GAP = [Case("paper-512", "hops", s, gap=0.0) for s in SEEDS[:2]]
KNOWLEDGE = [
    Case("paper-512", policy, seed, knows=knows)
    for seed in SEEDS[:2]
    for policy in (*PAPERS_RIVALS, *OTHER_POLICIES)
    for knows in Knows
]
SEARCH = [
    Case("paper-512", policy, seed, assumptions=assumptions)
    for assumptions in COMBINATIONS
    for seed in SEEDS[:3]
    for policy in PAPERS_RIVALS
]

EXPERIMENTS = {
    "table3": TABLE_3,
    "table4": TABLE_4,
    "others": TABLE_4_OTHERS,
    "priorities": PRIORITIES,
    "ftf": FTF,
    "arrivals": ARRIVALS,
    "gap": NO_GAP,
    "knowledge": KNOWLEDGE,
    "search": SEARCH,
}
