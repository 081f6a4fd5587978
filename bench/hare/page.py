"""docs/hare.md: tables and figures of what was run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean

from bench.hare.experiments import FIGURES, Figure
from bench.hare.rounds import SEEDS, rounds
from bench.hare.runs import SCHEMES, Outcome, outcome
from bench.hare.small import beyond, distances
from bench.hare.text import FIGURES_OPENING, FINDINGS, OPENING, SMALL
from hopsd.policies.hare.baselines import BASELINES
from hopsd.policies.hare.schedulers import SCHEDULERS
from hopsd.sim.svg import Axis, chart, distribution

DRAWN = ("14", "15", "18", "19")
PAPER_GAINS = {"12": (47.6, 75.3), "15": (54.6, 80.5)}
"""Percent by which the paper's Hare is below the others; figure 15's at 300 jobs."""


def write_page(folder: Path, docs: Path) -> None:
    """Of all scenarios, run or kept in ``folder``."""
    images = docs / "img"
    runs = {
        figure.number: {label: outcome(scenario, folder) for label, scenario in figure.cases}
        for figure in FIGURES
    }
    parts = [OPENING, _rounds(folder), FIGURES_OPENING, _against_paper(runs), FINDINGS]
    for figure in FIGURES:
        found = runs[figure.number]
        parts += [f"### Figure {figure.number}: {figure.title}\n", _table(figure, found)]
        if figure.number in DRAWN:
            parts.append(_lines(figure, found, images))
        if figure.number == "12":
            parts.append(_completions(found["testbed"], images))
    parts += [SMALL, _small(folder)]
    (docs / "hare.md").write_text("\n".join(parts))


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |\n"


def _head(cells: Sequence[str]) -> str:
    return _row(cells) + _row(["---", *["---:"] * (len(cells) - 1)])


def _rounds(folder: Path) -> str:
    """Means over the seeds."""
    columns = {"mean JCT, h": "avg_jct_h", "p99 JCT, h": "p99_jct_h", "makespan, h": "makespan_h",
               "GPU use": "gpu_utilisation", "restarts": "restarts"}  # fmt: skip
    text = _head([f"25 jobs, 64 GPUs, {len(SEEDS)} seeds", *columns])
    for policy, found in rounds(folder):
        means = [fmean(k.figures[key] for k in found) for key in columns.values()]
        text += _row([f"`{policy}`", *(f"{m:.3g}" for m in means)])
    return text


def _against_paper(runs: dict[str, dict[str, Outcome]]) -> str:
    """By how much each of Hare's rules changes the weighted completion time."""
    text = _head(["", *BASELINES, "paper"])
    for number, label in (("12", "testbed"), ("15", "300")):
        found = runs[number][label]
        low, high = PAPER_GAINS[number]
        where = "15 GPUs, 40 jobs" if number == "12" else "160 GPUs, 300 jobs"
        for rule in SCHEDULERS:
            changes = [100 * (found.weighted(rule) / found.weighted(b) - 1) for b in BASELINES]
            shown = f"-{low} to -{high} %" if rule == "hare" else ""
            text += _row([f"`{rule}`, {where}", *(f"{c:+.0f} %" for c in changes), shown])
    return text


def _table(figure: Figure, found: dict[str, Outcome]) -> str:
    text = _head([figure.label, *SCHEMES, "best / bound"])
    for label, run in found.items():
        nearest = min(run.objective.values()) / run.bound
        text += _row([label, *(f"{run.weighted(s):.3f}" for s in SCHEMES), f"{nearest:.2f}"])
    return text


def _lines(figure: Figure, found: dict[str, Outcome], images: Path) -> str:
    values = [float(label) for label in found]
    highest = max(run.weighted(s) for run in found.values() for s in SCHEMES)
    lines = {
        s: [(x, run.weighted(s)) for x, run in zip(values, found.values(), strict=True)]
        for s in SCHEMES
    }
    x = Axis(figure.label, min(values), max(values))
    y = Axis("weighted completion time, 1000 h", 0.0, 1.25 * highest)
    name = f"hare-{figure.number}.svg"
    return _save(images / name, chart(figure.title, x, y, lines, steps=False), figure.title)


def _completions(run: Outcome, images: Path) -> str:
    minutes = {s: [t / 60 for t in times] for s, times in run.completion.items()}
    title = "completion times on the testbed's GPUs (figure 13)"
    drawn = distribution(title, "completion time, minutes", minutes)
    return _save(images / "hare-13.svg", drawn, title)


def _save(path: Path, drawn: str, title: str) -> str:
    alone = '<svg xmlns="http://www.w3.org/2000/svg" font-size="11" font-family="sans-serif" '
    path.write_text(drawn.replace("<svg ", alone, 1))
    return f"![{title}](img/{path.name})\n"


def _small(folder: Path) -> str:
    text = _head(["GPUs", "rule", "mean", "95 %", "worst", "optimal", "above the guarantee",
                  "guarantee, least", "bound, mean"])  # fmt: skip
    for kind, found in distances(folder).items():
        for rule in SCHEDULERS:
            ratios = sorted(d.ratio[rule] for d in found)
            optimal = sum(r <= 1 + 1e-9 for r in ratios) / len(ratios)
            text += _row([
                kind, f"`{rule}`", f"{fmean(ratios):.3f}",
                f"{ratios[int(0.95 * len(ratios))]:.2f}", f"{ratios[-1]:.2f}", f"{optimal:.0%}",
                f"{beyond(found, rule)} of {len(found)}",
                f"{min(d.guarantee for d in found):.1f}", f"{fmean(d.bound for d in found):.2f}",
            ])  # fmt: skip
    return text
