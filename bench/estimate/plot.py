"""The two figures of docs/estimator.md."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.estimate.placements import Result
from bench.estimate.unstable import Errors

mpl.rcParams["svg.hashsalt"] = "hops"  # the same figure gives the same file

SEEN_TO = 80
"""Largest error, in percent, up to which the curves are drawn."""


def draw_executions(path: Path, errors: Sequence[Errors], iterations: int) -> None:
    counts = [e.executions for e in errors]
    figure, panel = plt.subplots(figsize=(6, 3.5))
    panel.plot(counts, [100 * e.p90 for e in errors], "s--", label="90th percentile")
    panel.plot(counts, [100 * e.median for e in errors], "o-", label="median")
    panel.set(
        xlabel=f"executions of {iterations} iterations",
        ylabel="error of predicted throughput (%)",
        xscale="log",
        ylim=(0, None),
    )
    panel.set_xticks(counts, [str(count) for count in counts])
    panel.minorticks_off()
    _save(figure, panel, path)


def draw_placements(path: Path, results: Sequence[Result]) -> None:
    figure, panel = plt.subplots(figsize=(6, 3.5))
    for result in results:
        errors = np.sort(100 * result.all_errors)
        share = np.arange(1, len(errors) + 1) / len(errors)
        subset = slice(None, None, max(1, len(errors) // 400))
        label = f"{result.candidate.partition(':')[0]}, B_net from {result.net}"
        colour = "tab:orange" if result.candidate.startswith("ring") else "tab:blue"
        style = {"11": "-", "22": "--", "44": ":"}[result.net]
        panel.plot(errors[subset], share[subset], style, color=colour, label=label)
    panel.set(
        xlabel="error of predicted throughput (%)",
        ylabel="share of placements",
        xlim=(0, SEEN_TO),
        ylim=(0, 1),
    )
    _save(figure, panel, path)


def _save(figure: Figure, panel: Axes, path: Path) -> None:
    panel.grid(alpha=0.3)
    panel.legend()
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
