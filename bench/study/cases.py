"""Cases of the study: works, conditions and policies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

SEEDS = (0, 1, 2, 3, 4)
BASE = "mix"
"""The work whose conditions vary; see ``bench/study/works.py`` for all works."""

POLICIES = (
    *("hops", "sia", "srtf", "las", "gavel", "themis", "hare-eft", "slurm"),
    *("hops-srtf", "hops+"),
)
VARIED_POLICIES = ("hops", "sia", "srtf", "las", "themis", "hops+")
"""Policies simulated under every condition."""

BEST = ("hops+", "hops-srtf", "hops", "sia", "srtf", "themis")
"""Policies that are best in some figure above; also simulated on other clusters."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """Conditions of a simulation.

    ``restart`` is in seconds (None: by model size). ``load`` is arriving work over the cluster's
    capacity, counting all GPU types alike. ``rigid`` is the share of jobs that accept only their
    median count, ``speed_error`` the relative error of multi-GPU speeds. ``run_times`` says whether
    samples are known.
    """

    round: float = 360.0
    restart: float | None = 30.0
    load: float = 1.0
    rigid: float = 0.0
    speed_error: float = 0.0
    run_times: bool = True

    def __str__(self) -> str:
        restart = "model" if self.restart is None else f"{self.restart:g}"
        knowledge = "known" if self.run_times else "unknown"
        return (
            f"round{self.round:g}-restart{restart}-load{self.load:g}-rigid{self.rigid:g}"
            f"-error{self.speed_error:g}-{knowledge}"
        )


@dataclass(frozen=True, slots=True)
class Case:
    """One simulation. ``seed`` is a drawn work's seed, or a published trace's number less one."""

    work: str
    conditions: Conditions
    policy: str
    seed: int

    @property
    def name(self) -> str:
        """The case's name, which is also the path of the saved run, in a folder per policy."""
        return f"{self.policy}/{self.work}-{self.conditions}-{self.seed}"


USUAL = Conditions()
FACTORS = {
    "load": {f"load {load:g}": replace(USUAL, load=load) for load in (0.5, 1.5)},
    "rigid": {f"{share:.0%} rigid": replace(USUAL, rigid=share) for share in (0.5, 1.0)},
    "times": {"run times unknown": replace(USUAL, run_times=False)},
    "speeds": {
        f"speeds known within {error:.0%}": replace(USUAL, speed_error=error)
        for error in (0.2, 0.5)
    },
    "restart": {
        "restart 5 s": replace(USUAL, restart=5.0),
        "restart 120 s": replace(USUAL, restart=120.0),
        "restart by model": replace(USUAL, restart=None),
    },
    "rounds": {f"rounds of {s:g} s": replace(USUAL, round=s) for s in (120.0, 60.0)},
}
"""Conditions by varied factor and row label."""

TRACES = {
    f"{trace}-{kind}": replace(USUAL, round=60.0)
    for trace in ("philly", "saturn")
    for kind in ("elastic", "rigid")
}
"""Sia's works, with the authors' round length."""

WORKS = {
    BASE: (BASE, USUAL),
    f"{BASE}, load 1.5": (BASE, FACTORS["load"]["load 1.5"]),
    f"{BASE}, all rigid": (BASE, FACTORS["rigid"]["100% rigid"]),
    **{name: (name, USUAL) for name in ("paper-64", "paper-512")},
    **{name: (name, conditions) for name, conditions in TRACES.items()},
}
"""A work and its conditions by row label."""


def cases(work: str, conditions: Conditions, policies: Sequence[str] = POLICIES) -> list[Case]:
    """Cases ordered by seed, then policy, so that an interrupted study has whole seeds."""
    return [Case(work, conditions, policy, seed) for seed in SEEDS for policy in policies]


CLUSTERS = {
    f"{cluster}, {kind}": (work, conditions)
    for work, cluster in (
        ("alike-8", "8 servers of 8"),
        ("alike-4", "16 servers of 4"),
        ("two-types", "4 fast servers of 8, 8 slow ones of 4"),
    )
    for kind, conditions in (
        ("load 1.5", FACTORS["load"]["load 1.5"]),
        ("all rigid", FACTORS["rigid"]["100% rigid"]),
    )
}
"""The base work's jobs on clusters that no policy was tuned on, as in :data:`WORKS`."""


EXPERIMENTS = {
    **{name: cases(work, conditions) for name, (work, conditions) in WORKS.items() if work == name},
    **{
        factor: [
            case for variant in values.values() for case in cases(BASE, variant, VARIED_POLICIES)
        ]
        for factor, values in FACTORS.items()
    },
    "clusters": [
        case for work, conditions in CLUSTERS.values() for case in cases(work, conditions, BEST)
    ],
}
