"""What hopsd would plan with for shapes that it never measured: Pollux's measurements as records.

A workload is one application at one batch size. hopsd knows its basic times from one GPU and the
records of some shapes, as its store would hold them, and no bandwidth: the measurements come
without a calibration.
"""

from __future__ import annotations

import csv
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.estimate import pollux
from hopsd.core.speed.estimator import Estimator, EstimatorSettings
from hopsd.core.speed.throughput import Communication, IterationModel, per_gpu
from hopsd.model.cluster import Node
from hopsd.model.ids import GpuType, NodeName, WorkloadName
from hopsd.model.job import ThroughputTable
from hopsd.model.knowledge import Knowledge, Theory, ThroughputRecord

T4, WORKLOAD = GpuType("t4"), WorkloadName("measured")
NODES = tuple(Node(NodeName(f"n{i}"), T4, 4, 4) for i in range(4))
SEEN = ((), ("2",), ("4",), ("11",), ("22",), ("44",), ("4", "11"), ("4", "11", "44"))
RANDOM = (1, 2, 4, 8)
FEWEST = 20
"""Shapes of a workload: with fewer there is little to predict."""

MODELS = {
    "hops": IterationModel(communication=Communication.SWITCHED),
    "hops, ring": IterationModel(communication=Communication.RING),
    "paper_exact": IterationModel(paper_exact=True),
}


@dataclass(frozen=True, slots=True)
class Measured:
    """One application at one batch size: seconds of a step by placement, ``1`` among them."""

    application: str
    batch: float
    seconds: dict[str, float]


@dataclass(frozen=True, slots=True)
class Row:
    """Mean relative error of predicted throughput by method; ``within``: share of what was
    measured that hops' spread holds, four of five by its word.
    """

    seen: str
    predictions: int
    errors: dict[str, float]
    medians: dict[str, float]
    within: float


def read(folder: Path) -> list[Measured]:
    """All applications and batch sizes.

    Raises:
        OSError: no such file.
    """
    found = []
    for path in sorted(folder.glob("*.csv")):
        batches: dict[float, dict[str, float]] = {}
        with path.open() as file:
            for row in csv.DictReader(file):
                batch = batches.setdefault(float(row["local_bsz"]), {})
                batch[row["placement"]] = float(row["step_time"])
        found += [
            Measured(path.stem, batch, seconds)
            for batch, seconds in batches.items()
            if "1" in seconds and len(seconds) >= FEWEST
        ]
    return found


def table_of(workload: Measured, seen: Sequence[str], model: IterationModel) -> ThroughputTable:
    """hopsd's table after records of the placements ``seen``."""
    alone = workload.seconds["1"]
    theory = Theory(
        WORKLOAD, T4, inference=False, pattern=2, batch_size=workload.batch, params=1e6,
        t_f=alone / 3, t_b=2 * alone / 3, t_u=0.0, p_cache=1.0, mu_cache=0.0, sigma_cache=0.0,
        mu_load=0.0, sigma_load=0.0, w_cache=0.0, w_load=0.0, records=3, iterations=50, at=0.0,
    )  # fmt: skip
    settings = EstimatorSettings(model=model)
    records = tuple(
        ThroughputRecord(WORKLOAD, T4, node.name, *counts(placement), rate, 0.0)
        for placement in seen
        for rate in [workload.batch / workload.seconds[placement]]
        for node, _ in zip(NODES, placement, strict=False)
        for _ in range(settings.min_records)
    )
    known = Knowledge(records=records, theory=(theory,))
    return Estimator(NODES, known, settings, 0.0).estimate(WORKLOAD).tables[T4]


def counts(placement: str) -> tuple[int, int]:
    """GPUs and servers of a placement such as ``13``."""
    return sum(map(int, placement)), len(placement)


def row(workloads: Sequence[Measured], seen: Sequence[str], more: int, seed: int = 0) -> Row:
    """Errors over all placements but ``seen`` and ``more`` random ones."""
    draw = random.Random(seed)
    errors: dict[str, list[float]] = {name: [] for name in (*MODELS, "Pollux")}
    within = []
    for workload in workloads:
        if not set(seen) <= set(workload.seconds):
            continue
        others = [p for p in workload.seconds if p not in ("1", *seen)]
        told = [*seen, *draw.sample(others, more)]
        unseen = [p for p in others if p not in told]
        # Placements of equal counts are one shape: a measured one is not predicted.
        shapes = {counts(p) for p in told}
        unseen = [p for p in unseen if counts(p) not in shapes]
        real = np.array([workload.batch / workload.seconds[p] for p in unseen])
        at = [counts(p) for p in unseen]
        for name, model in MODELS.items():
            table = table_of(workload, told, model)
            rates = np.array([per_gpu(table, *shape) for shape in at])
            errors[name] += np.abs(rates / real - 1.0).tolist()
            if name == "hops" and table.by_shape is not None:
                spread = [table.by_shape.between(*shape) for shape in at]
                within += [low <= r <= high for (low, high), r in zip(spread, real, strict=True)]
        known = ["1", *told]
        fit = pollux.fitted([counts(p) for p in known], [workload.seconds[p] for p in known])
        n, k = (np.array(column, dtype=float) for column in zip(*at, strict=True))
        errors["Pollux"] += np.abs(workload.batch / fit.seconds(n, k) / real - 1.0).tolist()
    label = ", ".join(seen) or "-"
    return Row(
        f"{more} random" if more else label,
        len(within),
        {name: float(np.mean(found)) for name, found in errors.items()},
        {name: float(np.median(found)) for name, found in errors.items()},
        float(np.mean(within)),
    )


def rows(workloads: Sequence[Measured]) -> list[Row]:
    """The whole table."""
    return [row(workloads, seen, 0) for seen in SEEN] + [row(workloads, (), n) for n in RANDOM]
