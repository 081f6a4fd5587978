"""Searches the assumptions that the paper does not print for those that reproduce table 4.

Simulates an eighth of the paper's 512 GPUs and 500 jobs, over the same five hours, so that a run
takes seconds, for every combination of assumptions about rounds, the shortest job and the work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import sqrt

from bench.spread import Interval, interval, short
from hopsd.model.scenario import Cluster, Workload
from hopsd.sim.presets import GPU_HOURS, mean_rate, preset

PART = 8
SHORTEST = GPU_HOURS["S"][0]


@dataclass(frozen=True, slots=True)
class Assumptions:
    """``shortest``: no job needs fewer hours of one GPU of the mean type. ``work`` is a factor on
    all jobs' hours in the other experiments.
    """

    round_seconds: float = 360.0
    shortest: float = SHORTEST
    work: float = 1.0

    def __str__(self) -> str:
        return f"round{self.round_seconds:g}-shortest{self.shortest:g}-work{self.work:g}"


COMBINATIONS = tuple(
    Assumptions(*combination)
    for combination in product((360.0, 1080.0, 180.0), (SHORTEST, 0.5), (1.0, 1.4))
)

Figures = Mapping[str, float]
Find = Callable[[Assumptions, str], Mapping[int, Figures]]
"""Returns, by seed, the figures of the runs of a policy under an assumption."""

FIGURES = {
    "makespan": "makespan_h",
    "mean JCT": "avg_jct_h",
    "mean wait": "avg_wait_h",
    "max LR": "max_latency_ratio",
    "fragments": "avg_fragments",
}
PAPER = {
    "sia-hops": (10.48 / 12.36, 2.24 / 3.79, 0.87 / 1.68, 3.22 / 78.5, 0.45 / 56.0),
    "gavel-queue": (10.48 / 15.42, 2.24 / 4.04, 0.87 / 2.24, 3.22 / 70.43, 0.45 / 18.0),
}
"""Table 4: figures of hops over the rival's."""


def scene(assumptions: Assumptions, seed: int) -> tuple[Cluster, Workload]:
    """An eighth of the 512 GPUs, and of their jobs."""
    whole = preset("paper-512")
    groups = [(hardware, count // PART, gpus) for hardware, count, gpus in whole.groups]
    part = replace(whole, groups=groups, jobs=whole.jobs // PART)
    cluster, workload = part.cluster(), part.workload(seed)
    present = cluster.gpus_by_type()
    hour = {name: 3600.0 * mean_rate(rates, present) for name, rates in workload.throughput.items()}
    jobs = tuple(
        replace(
            job,
            samples=max(job.samples * assumptions.work, assumptions.shortest * hour[job.workload]),
        )
        for job in workload.jobs
    )
    return cluster, replace(workload, jobs=jobs)


def agrees(paper: float, ratio: Interval) -> bool:
    """Whether hops leads by at least half of the paper's effect, and not by chance. Effects are
    compared as logarithms, since factors range from 1.2 to 100.
    """
    return ratio.mean <= sqrt(paper) and ratio.high < 1.0


def tables(find: Find) -> str:
    """One table per rival: ratios of hops' figures to the rival's, seed by seed, by assumption."""
    text = ""
    for rival, paper_ratios in PAPER.items():
        head = ["round, s", "shortest, GPU h", "work", *FIGURES, "agree"]
        text += f"\nOver `{rival}`:\n\n{_row(head)}" + _row(["---:"] * len(head))
        text += _row(["*paper*", "", "", *(f"*{ratio:.2g}*" for ratio in paper_ratios), ""])
        for assumptions in COMBINATIONS:
            hops, rival_figures = find(assumptions, "hops"), find(assumptions, rival)
            seeds = sorted(hops.keys() & rival_figures.keys())
            if len(seeds) > 1:
                ratios = [
                    interval([hops[s][key] for s in seeds], [rival_figures[s][key] for s in seeds])
                    for key in FIGURES.values()
                ]
                agreements = [
                    agrees(paper, hops_ratio)
                    for paper, hops_ratio in zip(paper_ratios, ratios, strict=True)
                ]
                cells = [
                    _cell(hops_ratio, yes)
                    for hops_ratio, yes in zip(ratios, agreements, strict=True)
                ]
                labels = (assumptions.round_seconds, assumptions.shortest, assumptions.work)
                text += _row([*(f"{value:g}" for value in labels), *cells, f"{sum(agreements)}"])
    return text


def _cell(ratio: Interval, yes: bool) -> str:
    mean = f"**{short(ratio.mean)}**" if yes else short(ratio.mean)
    return f"{mean} ({ratio})"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |\n"
