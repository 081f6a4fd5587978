"""Writes bench/results/study.md: tables of the saved runs."""

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
    VARIED_POLICIES,
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
    """Write the tables to bench/results/study.md."""
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


def works(find: Find, works_by_name: Mapping[str, tuple[str, Conditions]]) -> str:
    """Table of means by work and policy, with intervals of the ratio to the reference.

    ``works_by_name`` has a work and its conditions by row label.
    """
    lines = _head(["work", "policy", *FIGURES], texts=2)
    for name, (work, conditions) in works_by_name.items():
        runs_by_policy = _by_policy(find, work, conditions)
        means = {policy: _means(runs) for policy, runs in runs_by_policy.items()}
        best = {
            key: min((policy_means[key] for policy_means in means.values()), default=0.0)
            for key in KEYS
        }
        for row, policy in enumerate(
            sorted(runs_by_policy, key=lambda candidate: means[candidate]["avg_jct_h"])
        ):
            cells = []
            for key in KEYS:
                cell = short(means[policy][key])
                cell = f"**{cell}**" if means[policy][key] == best[key] else cell
                ratio = _ratio(runs_by_policy, policy, key)
                cells.append(cell if ratio is None else f"{cell} ({ratio})")
            first = name if row == 0 else ""
            lines.append(_row([first, f"`{policy}`", *cells]))
    return "".join(lines)


def conditions(find: Find) -> str:
    """Conditions by policies: mean completion times with intervals, then all figures as ratios."""
    conditions_by_name = {"none": USUAL} | {
        name: variant for variants in FACTORS.values() for name, variant in variants.items()
    }
    runs_by_name = {
        name: _by_policy(find, BASE, variant) for name, variant in conditions_by_name.items()
    }
    runs_by_name = {
        name: by_policy for name, by_policy in runs_by_name.items() if REFERENCE in by_policy
    }
    policies = [
        policy
        for policy in VARIED_POLICIES
        if any(policy in by_policy for by_policy in runs_by_name.values())
    ]
    lines = _head(["changed", *(f"`{policy}`" for policy in policies)], texts=1)
    ratios = list(lines)
    for name, by_policy in runs_by_name.items():
        lines.append(_row([name, *(_mean_cell(by_policy, policy) for policy in policies)]))
        ratios.append(_row([name, *(_ratios_cell(by_policy, policy) for policy in policies)]))
    return "".join([*lines, "\n", *ratios])


def _mean_cell(by_policy: ByPolicy, policy: str) -> str:
    if policy not in by_policy:
        return "not run"
    ratio = _ratio(by_policy, policy, KEYS[0])
    mean = short(_means(by_policy[policy])[KEYS[0]])
    return mean if ratio is None else f"{mean} ({ratio})"


def _ratios_cell(by_policy: ByPolicy, policy: str) -> str:
    """The figures of the reference, or the ratios of others; bold if the interval excludes 1."""
    if policy not in by_policy:
        return "not run"
    if policy == REFERENCE:
        return " / ".join(short(_means(by_policy[policy])[key]) for key in KEYS)
    ratios = [_ratio(by_policy, policy, key) for key in KEYS]
    return " / ".join(
        "" if ratio is None else f"**{short(ratio.mean)}**" if ratio.differs else short(ratio.mean)
        for ratio in ratios
    )


def _by_policy(find: Find, work: str, conditions: Conditions) -> ByPolicy:
    """Runs by policy and seed, for policies with runs of all seeds, in the order of POLICIES."""
    by_policy: ByPolicy = {}
    for case in cases(work, conditions):
        if (figures := find(case)) is not None:
            by_policy.setdefault(case.policy, {})[case.seed] = figures
    return {policy: runs for policy, runs in by_policy.items() if len(runs) == len(SEEDS)}


def _means(runs: Mapping[int, Figures]) -> Figures:
    return {key: fmean(figures[key] for figures in runs.values()) for key in KEYS}


def _ratio(by_policy: ByPolicy, policy: str, key: str) -> Interval | None:
    """Ratio to the reference over common seeds; None for fewer than two."""
    runs, reference_runs = by_policy[policy], by_policy.get(REFERENCE, {})
    seeds = [seed for seed in runs if seed in reference_runs]
    if policy == REFERENCE or len(seeds) < 2:
        return None
    return interval(
        [runs[seed][key] for seed in seeds], [reference_runs[seed][key] for seed in seeds]
    )


def _head(columns: Sequence[str], texts: int) -> list[str]:
    """Table head: the first ``texts`` columns are left-aligned, the others right-aligned."""
    return [_row(columns), "|---" * texts + "|---:" * (len(columns) - texts) + "|\n"]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |\n"
