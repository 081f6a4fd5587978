"""The figure of docs/estimator.md, with a panel for each network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

mpl.rcParams["svg.hashsalt"] = "hops"  # the same figure gives the same file


@dataclass(frozen=True, slots=True)
class Point:
    """Samples per second of a network on a shape, ``2+1``: two devices here and one there.

    ``ring`` and ``paper`` are the predictions of the two models of communication.
    """

    network: str
    shape: str
    measured: float
    ring: float
    paper: float


def draw(path: Path, points: Sequence[Point]) -> None:
    names = list(dict.fromkeys(point.network for point in points))
    figure, panels = plt.subplots(2, 2, figsize=(8, 5.5), squeeze=False)
    for name, panel in zip(names, panels.flat, strict=True):
        network_points = [point for point in points if point.network == name]
        positions = range(len(network_points))
        panel.bar(
            positions, [p.measured for p in network_points], color="lightgrey", label="measured"
        )
        panel.plot(
            positions, [p.ring for p in network_points], "o", color="tab:orange", label="predicted"
        )
        panel.plot(
            positions,
            [p.paper for p in network_points],
            "x",
            color="tab:blue",
            label="by the paper's eq. 2",
        )
        panel.set_xticks(positions, [p.shape for p in network_points], rotation=45)
        panel.set(title=name, ylabel="samples/s")
        panel.grid(axis="y", alpha=0.3)
    panels[0, 0].legend()
    figure.supxlabel("devices on each server")
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
