"""The figure of docs/elastic.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

mpl.rcParams["svg.hashsalt"] = "hops"  # the same figure gives the same file

SMOOTHED = 15


def draw(
    path: Path,
    alone: Sequence[float],
    runs: Sequence[tuple[int, Mapping[int, float]]],
    scaled: Sequence[tuple[float, float]],
) -> None:
    """Each step's loss: unbroken, in the runs of a moved training, and with a scaled batch."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), sharey=True)
    steps = np.arange(len(alone))
    left.plot(steps, alone, color="0.75", linewidth=3, label="unbroken, 1 GPU")
    colours = {1: "tab:blue", 2: "tab:orange", 3: "tab:green", 4: "tab:red"}
    labelled: set[int] = set()
    for ranks, losses in runs:
        label = None if ranks in labelled else f"moved, {ranks} GPU{'s' if ranks > 1 else ''}"
        labelled.add(ranks)
        left.plot(
            list(losses), list(losses.values()), color=colours[ranks], linewidth=0.8, label=label
        )
        left.axvline(min(losses), color="0.6", linewidth=0.5, linestyle=":")
        right.axvline(min(losses), color="0.6", linewidth=0.5, linestyle=":")
    left.set(title="ElasticLoader: the same global batch", ylabel="loss", ylim=(0, None))
    right.plot(*_smoothed(steps, alone), color="0.6", linewidth=2, label="the same global batch")
    right.plot(*_smoothed(*zip(*scaled, strict=True)), color="tab:purple", linewidth=1,
               label="32 samples per GPU, lr_rule=linear")  # fmt: skip
    right.set(title=f"batch follows the GPUs (mean of {SMOOTHED} steps)")
    for panel in (left, right):
        panel.set_xlabel("samples read / 32")
        panel.legend(frameon=False, fontsize=8)
        panel.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def _smoothed(at: Sequence[float], losses: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    window = np.ones(SMOOTHED) / SMOOTHED
    return np.convolve(at, window, "valid"), np.convolve(losses, window, "valid")
