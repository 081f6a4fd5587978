"""Experiments: the paper's figures 12 to 19."""

from __future__ import annotations

from dataclasses import dataclass

from bench.hare.workload import DOMAINS, Scenario

SEEDS = (0, 1, 2, 3, 4)
"""Seeds of the draws of jobs; every scenario is simulated with each."""

TESTBED_GPUS = {"V100": 8, "T4": 4, "M60": 2, "K80": 1}


@dataclass(frozen=True, slots=True)
class Figure:
    """``label`` of the axis, and the scenario at each of its values, without its seed."""

    number: str
    title: str
    label: str
    cases: tuple[tuple[str, Scenario], ...]


def _gpus(total: int) -> dict[str, int]:
    return dict.fromkeys(("V100", "T4", "M60", "K80"), total // 4)


def _mix(domain: str, share: float) -> dict[str, float]:
    """Shares by domain: ``share`` for ``domain``, equal parts of the rest for the others."""
    return {d: share if d == domain else (1 - share) / (len(DOMAINS) - 1) for d in DOMAINS}


FIGURES = (
    Figure("12", "15 GPUs of the testbed, 40 jobs", "", (
        ("testbed", Scenario(jobs=40, gpus=TESTBED_GPUS)),
    )),
    Figure("14", "number of GPUs, 200 jobs", "GPUs", tuple(
        (str(n), Scenario(gpus=_gpus(n))) for n in (80, 120, 160, 200, 240)
    )),
    Figure("15", "number of jobs, 160 GPUs", "jobs", tuple(
        (str(n), Scenario(jobs=n)) for n in (100, 150, 200, 250, 300)
    )),
    Figure("16", "heterogeneity, 160 GPUs, 200 jobs", "GPU types", (
        ("V100", Scenario(gpus={"V100": 160})),
        ("V100, K80", Scenario(gpus={"V100": 80, "K80": 80})),
        ("V100, T4, M60, K80", Scenario()),
    )),
    Figure("17", "share of one kind of jobs, the others equal", "kind", tuple(
        (f"{d} {share:.0%}", Scenario(mix=_mix(d, share))) for d in DOMAINS for share in (0.4, 0.55)
    )),
    Figure("18", "bandwidth", "Gbit/s", tuple(
        (f"{b:g}", Scenario(bandwidth=b)) for b in (10.0, 15.0, 20.0, 25.0)
    )),
    Figure("19", "batch size", "times the default", tuple(
        (f"{b:g}", Scenario(batch=b)) for b in (0.5, 1.0, 1.5, 2.0)
    )),
)  # fmt: skip
