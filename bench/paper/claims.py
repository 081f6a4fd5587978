"""What the Hops paper claims, what the runs say, and whether the two agree."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from bench.paper.experiments import ARRIVALS, FTF, PRIORITIES, RATES, TABLE_3, TABLE_4, Case
from bench.paper.runs import SavedRun
from bench.spread import mean_and_spread

Find = Callable[[Case], SavedRun | None]

SIA, GAVEL = "sia-hops", "gavel-queue"
NAMES = {SIA: "Sia", GAVEL: "Gavel"}

CHANGES = (
    (TABLE_3, "64 GPUs", "makespan_h", "makespan", {SIA: -18.5, GAVEL: -34.2}),
    (TABLE_3, "64 GPUs", "avg_jct_h", "mean JCT", {SIA: -27.4, GAVEL: -45.9}),
    (TABLE_3, "64 GPUs", "avg_wait_h", "mean wait", {SIA: -35.4, GAVEL: -54.9}),
    (TABLE_4, "512 GPUs", "makespan_h", "makespan", {SIA: -15.2, GAVEL: -32.0}),
    (TABLE_4, "512 GPUs", "avg_jct_h", "mean JCT", {SIA: -40.9, GAVEL: -44.5}),
)
"""Hops against a rival in percent (sections 4.2 and 4.3)."""

RATIOS = (
    ("max_latency_ratio", "largest latency ratio", {SIA: (3.22, 78.5), GAVEL: (3.22, 70.43)}),
    ("avg_fragments", "fragments a round", {SIA: (0.45, 56.0), GAVEL: (0.45, 18.0)}),
)
"""Hops' and the rival's figure on 512 GPUs (table 4)."""

FTF_RATIOS = {SIA: (2.15, 28.27), GAVEL: (2.15, 32.01)}
MOSTLY = 0.5
"""An effect agrees if it has the paper's direction and at least half of the paper's size."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One row: the claim, the paper's figure, ours, the number of seeds, the verdict."""

    text: str
    paper: str
    result: str
    seeds: int
    agrees: str


def claims(find: Find) -> list[Claim]:
    """The claims of section 4 for which there are runs."""
    return [*_changes(find), *_ratios(find), *_fairness(find), *_priorities(find), *_rates(find)]


def pairs(find: Find, cases: Sequence[Case], rival: str) -> list[tuple[SavedRun, SavedRun]]:
    """Runs of hops and of the rival on the same seeds."""
    runs = {(c.policy, c.seed): k for c in cases if (k := find(c)) is not None}
    seeds = [seed for policy, seed in runs if policy == "hops" and (rival, seed) in runs]
    return [(runs["hops", seed], runs[rival, seed]) for seed in seeds]


def verdict(paper: float, result: float) -> str:
    """Compare two effects, where 0 means none: "yes", "in direction" or "no"."""
    if paper * result <= 0:
        return "no"
    return "yes" if abs(result) >= MOSTLY * abs(paper) else "in direction"


def _changes(find: Find) -> Iterator[Claim]:
    for cases, setting, field, label, paper_values in CHANGES:
        for rival, paper in paper_values.items():
            run_pairs = pairs(find, cases, rival)
            changes = [100 * (a.figures[field] / b.figures[field] - 1) for a, b in run_pairs]
            if changes:
                yield Claim(
                    f"{setting}: {label} against {NAMES[rival]}",
                    f"{paper:+.1f} %",
                    f"{mean_and_spread(changes, '+.1f')} %",
                    len(run_pairs),
                    "undecided" if _noisy(changes) else verdict(paper, fmean(changes)),
                )


def _ratios(find: Find) -> Iterator[Claim]:
    for field, label, paper_values in RATIOS:
        for rival, (hops, rival_figure) in paper_values.items():
            run_pairs = pairs(find, TABLE_4, rival)
            if run_pairs:
                means = [fmean(k[i].figures[field] for k in run_pairs) for i in (0, 1)]
                yield Claim(
                    f"512 GPUs: {label}, hops and {NAMES[rival]}",
                    f"{hops:g} and {rival_figure:g}",
                    f"{means[0]:.3g} and {means[1]:.3g}",
                    len(run_pairs),
                    verdict(rival_figure / hops - 1, means[1] / means[0] - 1),
                )


def _fairness(find: Find) -> Iterator[Claim]:
    fair = [k for c in FTF if (k := find(c)) is not None]
    for rival, (hops, rival_figure) in FTF_RATIOS.items():
        seeds = {k.case.seed for k in fair}
        rival_runs = [
            k for c in TABLE_4 if c.policy == rival and c.seed in seeds and (k := find(c))
        ]
        if fair and rival_runs:
            means = [fmean(k.figures["max_ftf"] for k in runs) for runs in (fair, rival_runs)]
            yield Claim(
                f"512 GPUs: largest finish-time fairness, hops-ftf and {NAMES[rival]}",
                f"{hops:g} and {rival_figure:g}",
                f"{means[0]:.3g} and {means[1]:.3g}",
                len(rival_runs),
                verdict(rival_figure / hops - 1, means[1] / means[0] - 1),
            )


def _priorities(find: Find) -> Iterator[Claim]:
    for policy in dict.fromkeys(case.policy for case in PRIORITIES):
        runs = [
            (find(Case(c.preset, "hops", c.seed)), find(c))
            for c in PRIORITIES
            if c.policy == policy
        ]
        ratios = [
            [k.figures["max_latency_ratio"] for k in (base, run)]
            for base, run in runs
            if base is not None and run is not None
        ]
        if ratios:
            means = [fmean(ratio) for ratio in zip(*ratios, strict=True)]
            changes = [with_priority / hops - 1 for hops, with_priority in ratios]
            name = policy.removeprefix("hops-").upper()
            yield Claim(
                f"512 GPUs: largest latency ratio, hops with latency ratio and with {name}",
                "3.22 and more than 80",
                f"{means[0]:.3g} and {means[1]:.3g}",
                len(ratios),
                "undecided" if _noisy(changes) else verdict(80 / 3.22 - 1, means[1] / means[0] - 1),
            )


def _rates(find: Find) -> Iterator[Claim]:
    for rival in (SIA, GAVEL):
        low_rate, high_rate = (_leads(find, rival, rate) for rate in (RATES[0], RATES[-1]))
        seeds = low_rate.keys() & high_rate.keys()
        if seeds:
            growth = [high_rate[seed] - low_rate[seed] for seed in seeds]
            means = [fmean(lead[seed] for seed in seeds) for lead in (low_rate, high_rate)]
            yield Claim(
                f"hops' lead in mean JCT over {NAMES[rival]} grows with the arrival rate",
                "yes",
                f"{means[0]:.2f} h at {RATES[0]:g} an hour, {means[1]:.2f} h at {RATES[-1]:g}",
                len(seeds),
                "undecided" if _noisy(growth) else "yes" if fmean(growth) > 0 else "no",
            )


def _leads(find: Find, rival: str, rate: float) -> dict[int, float]:
    """How many hours earlier hops' jobs end on average, by seed."""
    run_pairs = pairs(find, [case for case in ARRIVALS if case.rate == rate], rival)
    return {a.case.seed: b.figures["avg_jct_h"] - a.figures["avg_jct_h"] for a, b in run_pairs}


def _noisy(values: Sequence[float]) -> bool:
    """Whether the seeds differ by more than the effect."""
    return len(values) > 1 and stdev(values) > abs(fmean(values))
