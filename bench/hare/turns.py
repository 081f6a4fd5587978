"""Hare's policies in the simulator: jobs that keep GPUs for rounds, or take turns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.hare.rounds import SEEDS
from bench.saved_runs import Document, load_or_run
from hopsd.policies.hare.schedulers import SCHEDULERS
from hopsd.policies.registry import get
from hopsd.sim.cluster import ClusterSettings
from hopsd.sim.engine import SimulationSettings
from hopsd.sim.presets import preset
from hopsd.sim.study import figures, play, result_of
from hopsd.sim.turns import LaneSimulation

PRESET = "paper-64"


@dataclass(frozen=True, slots=True)
class Change:
    """Seconds of a ``restart`` and of a ``switch`` (None: every change is a restart)."""

    label: str
    restart: float
    switch: float | None = None


CHANGES = (
    Change("rounds, restarts of 3.2 s, `hops-run`", 3.2),
    Change("turns, switches of 10 ms, kept", 3.2, 0.010),
)
"""Measured in docs/switching.md; the page's table of rounds has restarts of 30 s."""


def changes(folder: Path) -> Iterator[tuple[str, Change, list[Document]]]:
    """Yield each seed's figures by policy and change; simulate missing ones."""
    for policy in SCHEDULERS:
        for change in CHANGES:
            name = f"turns-{policy}-{change.restart:g}-{change.switch}"
            runs = [
                load_or_run(folder / f"{name}-{seed}.json", partial(_run, policy, change, seed))
                for seed in SEEDS
            ]
            yield policy, change, runs


def _run(policy: str, change: Change, seed: int) -> Document:
    scenario = preset(PRESET)
    cluster, workload = scenario.cluster(), scenario.workload(seed)
    settings = SimulationSettings(cluster=ClusterSettings(change.restart))
    if change.switch is None:
        return figures(play(policy, get(policy), cluster, workload, settings))
    run = LaneSimulation(cluster, workload, SCHEDULERS[policy], settings, change.switch).run()
    return figures(result_of(policy, run, cluster, workload))
