"""Writes bench/results/hare.md: tables and figures of the runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from hops_rivals.hare import BASELINES

from bench.hare.experiments import FIGURES, SEEDS, Figure
from bench.hare.rounds import SEEDS as ROUNDS_SEEDS
from bench.hare.rounds import rounds
from bench.hare.runs import SCHEMES, Outcome, outcome
from bench.hare.small import count_above_guarantee, distances
from bench.hare.switched import (
    CHANGES,
    COMPARED_SEEDS,
    COMPARISON,
    QUARTERS,
    SCENARIOS,
    weighted_runs,
)
from bench.hare.text import (
    COMPARED_FINDINGS,
    COMPARED_OPENING,
    FIGURES_OPENING,
    FINDINGS,
    INTRODUCTION,
    SMALL,
    SWITCH_SECTION,
    SWITCHED_FINDINGS,
    SWITCHED_TABLES,
    TURNS,
    TURNS_FINDINGS,
)
from bench.hare.turns import changes
from bench.hare.workload import Scenario
from bench.result_file import save_svg, write_result
from bench.spread import mean_and_spread
from hopsd.policies.hare.schedulers import SCHEDULERS
from hopsd.sim.svg import Axis, chart, distribution

CHART_FIGURES = ("14", "15", "18", "19")
PAPER_GAINS = {"12": (47.6, 75.3), "15": (54.6, 80.5)}
"""How many percent the paper's Hare is below the others; for figure 15 at 300 jobs."""


Runs = list[Outcome]
"""Outcomes of one scenario, ordered by seed."""


def outcomes(scenario: Scenario, folder: Path) -> Runs:
    """Outcomes of all seeds, simulated or loaded from ``folder``."""
    return [outcome(replace(scenario, seed=seed), folder) for seed in SEEDS]


def write_page(folder: Path, docs: Path) -> None:
    """Write the page of all scenarios, simulated or loaded from ``folder``."""
    images = docs / "img"
    runs = {
        figure.number: {label: outcomes(scenario, folder) for label, scenario in figure.cases}
        for figure in FIGURES
    }
    parts = [
        INTRODUCTION,
        _rounds(folder),
        in_turns(folder),
        FIGURES_OPENING,
        _paper_comparison(runs),
        FINDINGS,
        SWITCH_SECTION,
        SWITCHED_FINDINGS,
        COMPARED_FINDINGS,
    ]
    for figure in FIGURES:
        figure_runs = runs[figure.number]
        parts += [f"### Figure {figure.number}: {figure.title}\n", _table(figure, figure_runs)]
        if figure.number in CHART_FIGURES:
            parts.append(_lines(figure, figure_runs, images))
        if figure.number == "12":
            parts.append(_completions(figure_runs["testbed"], images))
    parts += [switching_tables(folder), SMALL, _small(folder)]
    write_result("hare", "Hare", "\n".join(parts))


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |\n"


def _head(cells: Sequence[str]) -> str:
    return _row(cells) + _row(["---", *["---:"] * (len(cells) - 1)])


COLUMNS = {"mean JCT, h": "avg_jct_h", "p99 JCT, h": "p99_jct_h", "makespan, h": "makespan_h",
           "GPU use": "gpu_utilisation"}  # fmt: skip


def _rounds(folder: Path) -> str:
    """Table of the round-based runs: means over the seeds."""
    columns = COLUMNS | {"restarts": "restarts"}
    text = _head([f"25 jobs, 64 GPUs, {len(ROUNDS_SEEDS)} seeds", *columns])
    for policy, policy_runs in rounds(folder):
        means = [fmean(k.figures[key] for k in policy_runs) for key in columns.values()]
        text += _row([f"`{policy}`", *(f"{m:.3g}" for m in means)])
    return text


def in_turns(folder: Path) -> str:
    """Jobs that take turns within a round against jobs that keep their GPUs; means over seeds."""
    text = _head(["how GPUs change jobs", *COLUMNS])
    for policy, change, policy_runs in changes(folder):
        means = [fmean(run[key] for run in policy_runs) for key in COLUMNS.values()]
        text += _row([f"`{policy}`, {change.label}", *(f"{m:.3g}" for m in means)])
    return "\n".join((TURNS, text, TURNS_FINDINGS))


def _paper_comparison(runs: dict[str, dict[str, Runs]]) -> str:
    """How much each of Hare's rules changes the weighted completion time."""
    text = _head(["", *BASELINES, "paper"])
    for number, label in (("12", "testbed"), ("15", "300")):
        figure_runs = runs[number][label]
        low, high = PAPER_GAINS[number]
        setting = "15 GPUs, 40 jobs" if number == "12" else "160 GPUs, 300 jobs"
        for rule in SCHEDULERS:
            changes = [
                [100 * (run.weighted_time(rule) / run.weighted_time(b) - 1) for run in figure_runs]
                for b in BASELINES
            ]
            paper_gain = f"-{low} to -{high} %" if rule == "hare" else ""
            text += _row(
                [
                    f"`{rule}`, {setting}",
                    *(f"{mean_and_spread(c, '+.0f')} %" for c in changes),
                    paper_gain,
                ]
            )
    return text


def _table(figure: Figure, figure_runs: dict[str, Runs]) -> str:
    text = _head([figure.label, *SCHEMES, "best / bound"])
    for label, runs in figure_runs.items():
        nearest = fmean(min(run.objective.values()) / run.bound for run in runs)
        cells = [[run.weighted_time(s) for run in runs] for s in SCHEMES]
        means = [mean_and_spread(values, ".3f") for values in cells]
        text += _row([label, *means, f"{nearest:.2f}"])
    return text


def _lines(figure: Figure, figure_runs: dict[str, Runs], images: Path) -> str:
    values = [float(label) for label in figure_runs]
    means = {
        s: [fmean(run.weighted_time(s) for run in runs) for runs in figure_runs.values()]
        for s in SCHEMES
    }
    highest = max(max(ys) for ys in means.values())
    lines = {s: list(zip(values, ys, strict=True)) for s, ys in means.items()}
    x = Axis(figure.label, min(values), max(values))
    y = Axis("weighted completion time, 1000 h", 0.0, 1.25 * highest)
    name = f"hare-{figure.number}.svg"
    return _save(images / name, chart(figure.title, x, y, lines, steps=False), figure.title)


def _completions(runs: Runs, images: Path) -> str:
    minutes = {s: [t / 60 for run in runs for t in run.completion[s]] for s in SCHEMES}
    title = "completion times on the testbed's GPUs (figure 13)"
    svg = distribution(title, "completion time, minutes", minutes)
    return _save(images / "hare-13.svg", svg, title)


def _save(path: Path, svg: str, title: str) -> str:
    save_svg(path, svg)
    return f"![{title}](img/{path.name})\n"


def switching_tables(folder: Path) -> str:
    """Tables on switching between jobs, simulated or loaded from ``folder``."""
    parts = [SWITCHED_TABLES]
    for label, scenario in SCENARIOS.items():
        text = _head([f"{label}: how GPUs change jobs", *SCHEMES, "switches a task"])
        for change in CHANGES:
            runs = weighted_runs(change, scenario, folder)
            cells = [mean_and_spread([run["weighted"][s] for run in runs], ".3f") for s in SCHEMES]
            shares = [fmean(run["switches"][s] for run in runs) for s in SCHEDULERS]
            text += _row([change.label, *cells, ", ".join(f"{share:.2f}" for share in shares)])
        parts.append(text)
    parts += [COMPARED_OPENING, _change_comparison(folder)]
    return "\n".join(parts)


def _change_comparison(folder: Path) -> str:
    """Table of ways to change jobs: means over the seeds."""
    text = _head(["figure", *SCHEMES])
    for name, scenario in QUARTERS:
        runs = [weighted_runs(change, scenario, folder, COMPARED_SEEDS) for change in COMPARISON]
        means = [[fmean(run["weighted"][s] for run in values) for values in runs] for s in SCHEMES]
        text += _row([name, *(" / ".join(f"{mean:.3f}" for mean in values) for values in means)])
    return text


def _small(folder: Path) -> str:
    text = _head(["GPUs", "rule", "mean", "95 %", "worst", "optimal", "above the guarantee",
                  "guarantee, least", "bound, mean"])  # fmt: skip
    for kind, kind_distances in distances(folder).items():
        for rule in SCHEDULERS:
            ratios = sorted(d.ratio[rule] for d in kind_distances)
            optimal = sum(r <= 1 + 1e-9 for r in ratios) / len(ratios)
            text += _row([
                kind, f"`{rule}`", f"{fmean(ratios):.3f}",
                f"{ratios[int(0.95 * len(ratios))]:.2f}", f"{ratios[-1]:.2f}", f"{optimal:.0%}",
                f"{count_above_guarantee(kind_distances, rule)} of {len(kind_distances)}",
                f"{min(d.guarantee for d in kind_distances):.1f}",
                f"{fmean(d.bound for d in kind_distances):.2f}",
            ])  # fmt: skip
    return text
