"""The figures of docs/elastic.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

mpl.rcParams["svg.hashsalt"] = "hops"  # the same figure gives the same file

SMOOTHING_STEPS = 15

COLOURS = {1: "tab:blue", 2: "tab:orange", 3: "tab:green", 4: "tab:red"}

Runs = Sequence[tuple[int, Mapping[int, float]]]
"""For each run its number of ranks, and the loss of each step by number."""


def draw(path: Path, alone: Sequence[float], runs: Runs, scaled_run: Any) -> None:
    """Draw each step's loss: unbroken, in the runs of a moved training, and with a scaled batch.
    ``scaled_run`` has pairs: how many global batches had been read, and the loss.
    """
    figure, (loss_axes, rate_axes) = plt.subplots(1, 2, figsize=(10, 3.8), sharey=True)
    _moves(loss_axes, alone, runs)
    loss_axes.set(title="ElasticLoader: the same global batch", xlabel="samples read / 32")
    steps = np.arange(len(alone))
    for _, losses in runs:
        rate_axes.axvline(min(losses), color="0.6", linewidth=0.5, linestyle=":")
    rate_axes.plot(
        *_smooth(steps.tolist(), alone), color="0.6", linewidth=2, label="the same global batch"
    )
    rate_axes.plot(*_smooth(*zip(*scaled_run, strict=True)), color="tab:purple", linewidth=1,
               label="32 samples per GPU, lr_rule=linear")  # fmt: skip
    rate_axes.set(title=f"batch follows the GPUs (mean of {SMOOTHING_STEPS} steps)")
    _finish(rate_axes, "samples read / 32")
    _save(figure, path)


def draw_moves(path: Path, alone: Sequence[float], runs: Runs) -> None:
    """Draw each step's loss, unbroken and in the runs of a moved training."""
    figure, axes = plt.subplots(figsize=(7, 3))
    _moves(axes, alone, runs)
    axes.set_xlabel("optimizer step")
    _save(figure, path)


def _moves(axes: Any, alone: Sequence[float], runs: Runs) -> None:
    axes.plot(np.arange(len(alone)), alone, color="0.75", linewidth=3, label="unbroken, 1 GPU")
    labels_drawn: set[int] = set()
    for ranks, losses in runs:
        label = None if ranks in labels_drawn else f"moved, {ranks} GPU{'s' if ranks > 1 else ''}"
        labels_drawn.add(ranks)
        axes.plot(
            list(losses), list(losses.values()), color=COLOURS[ranks], linewidth=0.8, label=label
        )
        axes.axvline(min(losses), color="0.6", linewidth=0.5, linestyle=":")
    axes.set(ylabel="loss", ylim=(0, None))
    _finish(axes, "samples read / 32")


def _finish(axes: Any, label: str) -> None:
    axes.set_xlabel(label)
    axes.legend(frameon=False, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def _save(figure: Any, path: Path) -> None:
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def _smooth(at: Sequence[float], losses: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    window = np.ones(SMOOTHING_STEPS) / SMOOTHING_STEPS
    return np.convolve(at, window, "valid"), np.convolve(losses, window, "valid")
