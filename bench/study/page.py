"""bench/results/study.md: tables of the kept runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from bench.result_file import write_result
from bench.spread import Interval, interval, short
from bench.study.cases import (
    BASE,
    CLUSTERS,
    FACTORS,
    SEEDS,
    USUAL,
    VARIED,
    WORKS,
    Case,
    Conditions,
    cases,
)
from bench.study.runs import Figures

FIGURES = {
    "mean, h": "avg_jct_h",
    "99 %, h": "p99_jct_h",
    "makespan, h": "makespan_h",
    "largest LR": "max_latency_ratio",
    "largest FTF": "max_ftf",
}
KEYS = tuple(FIGURES.values())
REFERENCE = "hops"

Find = Callable[[Case], Figures | None]
ByPolicy = dict[str, dict[int, Figures]]


def write(find: Find) -> None:
    """Put the tables into bench/results/study.md."""
    text = f"""Mean, 99 % and makespan in hours, largest latency ratio and finish-time fairness;
means over five seeds, in parentheses the 95 % interval of the ratio to `hops`. Rounds of 360 s,
restarts of 30 s; speeds and run times known.

## Works

{works(find, WORKS)}
## Other clusters

{works(find, CLUSTERS)}
## Conditions

The mean completion time in hours, then all five figures, of `hops` in hours and ratios, of the
others relative to it.

{conditions(find)}"""
    title = "Policies on several works, one condition changed at a time"
    write_result("study", title, text)


def works(find: Find, those: Mapping[str, tuple[str, Conditions]]) -> str:
    """Works by policies by figures: means, and intervals of the ratio to the reference's. Of
    ``those``, by the name that the table has for them: a work and its conditions.
    """
    lines = _head(["work", "policy", *FIGURES], texts=2)
    for name, (work, conditions) in those.items():
        found = _by_policy(find, work, conditions)
        means = {policy: _means(runs) for policy, runs in found.items()}
        best = {key: min((of[key] for of in means.values()), default=0.0) for key in KEYS}
        for row, policy in enumerate(sorted(found, key=lambda one: means[one]["avg_jct_h"])):
            cells = []
            for key in KEYS:
                shown = short(means[policy][key])
                shown = f"**{shown}**" if means[policy][key] == best[key] else shown
                ratio = _ratio(found, policy, key)
                cells.append(shown if ratio is None else f"{shown} ({ratio})")
            first = name if row == 0 else ""
            lines.append(_row([first, f"`{policy}`", *cells]))
    return "".join(lines)


def conditions(find: Find) -> str:
    """Conditions by policies: mean completion times with intervals, then all figures as ratios."""
    every = {"none": USUAL} | {name: of for each in FACTORS.values() for name, of in each.items()}
    played = {name: _by_policy(find, BASE, of) for name, of in every.items()}
    played = {name: found for name, found in played.items() if REFERENCE in found}
    policies = [policy for policy in VARIED if any(policy in found for found in played.values())]
    lines = _head(["changed", *(f"`{policy}`" for policy in policies)], texts=1)
    ratios = list(lines)
    for name, found in played.items():
        lines.append(_row([name, *(_mean_cell(found, policy) for policy in policies)]))
        ratios.append(_row([name, *(_ratios_cell(found, policy) for policy in policies)]))
    return "".join([*lines, "\n", *ratios])


def _mean_cell(found: ByPolicy, policy: str) -> str:
    if policy not in found:
        return "not run"
    ratio = _ratio(found, policy, KEYS[0])
    mean = short(_means(found[policy])[KEYS[0]])
    return mean if ratio is None else f"{mean} ({ratio})"


def _ratios_cell(found: ByPolicy, policy: str) -> str:
    """Of the reference its figures; of others the ratios, bold where the interval leaves out 1."""
    if policy not in found:
        return "not run"
    if policy == REFERENCE:
        return " / ".join(short(_means(found[policy])[key]) for key in KEYS)
    shown = [_ratio(found, policy, key) for key in KEYS]
    return " / ".join(
        "" if one is None else f"**{short(one.mean)}**" if one.differs else short(one.mean)
        for one in shown
    )


def _by_policy(find: Find, work: str, conditions: Conditions) -> ByPolicy:
    """The runs by their seeds of each policy that all seeds were played under, in the order in
    which policies are named.
    """
    found: ByPolicy = {}
    for case in cases(work, conditions):
        if (figures := find(case)) is not None:
            found.setdefault(case.policy, {})[case.seed] = figures
    return {policy: runs for policy, runs in found.items() if len(runs) == len(SEEDS)}


def _means(runs: Mapping[int, Figures]) -> Figures:
    return {key: fmean(figures[key] for figures in runs.values()) for key in KEYS}


def _ratio(found: ByPolicy, policy: str, key: str) -> Interval | None:
    """To the reference, on the seeds that both have."""
    own, other = found[policy], found.get(REFERENCE, {})
    seeds = [seed for seed in own if seed in other]
    if policy == REFERENCE or len(seeds) < 2:
        return None
    return interval([own[seed][key] for seed in seeds], [other[seed][key] for seed in seeds])


def _head(columns: Sequence[str], texts: int) -> list[str]:
    """The first ``texts`` columns are words, the others figures."""
    return [_row(columns), "|---" * texts + "|---:" * (len(columns) - texts) + "|\n"]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |\n"
