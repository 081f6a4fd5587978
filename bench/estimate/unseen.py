"""What hopsd would plan with for shapes that it never measured: Pollux's measurements as records.

A workload is one application at one batch size. hopsd knows its basic times from one GPU and the
records of some shapes, as its store would hold them, and no bandwidth: the measurements come
without a calibration.
"""

from __future__ import annotations

import csv
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from bench.estimate import pollux
from hopsd.core.speed.batches import NEWEST, SAME
from hopsd.core.speed.estimator import Estimator, EstimatorSettings
from hopsd.core.speed.inferred import with_implied_bandwidths
from hopsd.core.speed.throughput import Communication, IterationModel, per_gpu
from hopsd.model.ids import GpuType, NodeName, WorkloadName
from hopsd.model.job import Node, ThroughputTable
from hopsd.model.knowledge import Knowledge, Theory, ThroughputRecord

T4, WORKLOAD = GpuType("t4"), WorkloadName("measured")
NODES = tuple(Node(NodeName(f"n{i}"), T4, 4, 4) for i in range(4))
SEEN = ((), ("2",), ("4",), ("11",), ("22",), ("44",), ("4", "11"), ("4", "11", "44"))
RANDOM = (1, 2, 4, 8)
BEFORE = ("1", "4", "11", "44", "222")
"""What was measured before the batch size changed, in :func:`changed_batch`."""

SINCE = (("1",), ("1", "2"), ("1", "4"), ("1", "11"), ("1", "2", "22"))
CHANGES = 3
"""Other batch sizes of the same application, drawn for each workload."""

PARAMETERS = {"bert": 110e6, "cifar10": 11.2e6, "imagenet": 25.6e6, "yolov3": 61.9e6}
"""Of BERT base, ResNet-18, ResNet-50 and YOLOv3: the applications whose network is known."""

OTHERS = (("11",), ("4", "11"), ("44",), ("4", "44"))

FEWEST = 20
"""Shapes of a workload: with fewer there is little to predict."""

MODELS = {
    "hops": IterationModel(communication=Communication.SWITCHED),
    "hops, ring": IterationModel(communication=Communication.RING),
    "paper_exact": IterationModel(paper_exact=True),
}


Records = tuple[ThroughputRecord, ...]


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


def table_of(
    workload: Measured,
    seen: Sequence[str],
    model: IterationModel,
    *,
    more: Records = (),
    others: Sequence[Measured] = (),
    seen_of_others: Sequence[str] = (),
) -> ThroughputTable:
    """hopsd's table after records of the placements ``seen``, and ``more``; and of ``others``."""
    records = (*more, *records_of(workload, seen))
    fits = [_theory(workload, WORKLOAD)]
    for other in others:
        name = WorkloadName(other.application)
        fits.append(_theory(other, name))
        records += tuple(replace(r, workload=name) for r in records_of(other, seen_of_others))
    known = Knowledge(records=records, theory=tuple(fits))
    settings = EstimatorSettings(model=model)
    known = with_implied_bandwidths(known, settings, 0.0)
    return Estimator(NODES, known, settings, 0.0).estimate(WORKLOAD).tables[T4]


def _theory(measured: Measured, name: WorkloadName) -> Theory:
    """Basic times from one GPU: two thirds of it backward."""
    alone = measured.seconds["1"]
    return Theory(
        name, T4, inference=False, pattern=2, batch_size=measured.batch,
        params=PARAMETERS.get(measured.application, 1e6),
        t_f=alone / 3, t_b=2 * alone / 3, t_u=0.0, p_cache=1.0, mu_cache=0.0, sigma_cache=0.0,
        mu_load=0.0, sigma_load=0.0, w_cache=0.0, w_load=0.0, records=3, iterations=50, at=0.0,
    )  # fmt: skip


def records_of(workload: Measured, seen: Sequence[str], at: float = 0.0) -> Records:
    """Enough records of each placement to be believed."""
    return tuple(
        ThroughputRecord(
            *(WORKLOAD, T4, node.name, *counts(placement)),
            workload.batch / workload.seconds[placement],
            at + i / NEWEST,
            batch=workload.batch,
        )
        for placement in seen
        for node, _ in zip(NODES, placement, strict=False)
        for i in range(NEWEST)
    )


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


@dataclass(frozen=True, slots=True)
class Compared:
    """Mean and median relative error of throughput, by method."""

    seen: str
    predictions: int
    errors: dict[str, float]
    medians: dict[str, float]


def changed_batch(workloads: Sequence[Measured], since: Sequence[str], seed: int = 0) -> Compared:
    """Errors at the new batch size, of whose placements ``since`` were measured."""
    draw = random.Random(seed)
    errors: dict[str, list[float]] = defaultdict(list)
    for now, before in _changes(workloads, since, draw):
        old = records_of(before, BEFORE, -9.0)
        blind = tuple(replace(record, batch=0.0) for record in old)
        tables = {
            "hops": table_of(now, since, MODELS["hops"], more=old),
            "forgotten": table_of(now, since, MODELS["hops"]),
            "as if unchanged": table_of(now, since, MODELS["hops"], more=blind),
        }
        measured = {counts(p) for p in since}
        for placement in now.seconds:
            if counts(placement) in measured:
                continue
            real = now.batch / now.seconds[placement]
            for name, table in tables.items():
                errors[name].append(abs(per_gpu(table, *counts(placement)) / real - 1.0))
    return _compared(since, errors)


def new_application(workloads: Sequence[Measured], seen: Sequence[str]) -> Compared:
    """Errors of an application whose one GPU was measured, and of each other one, ``seen``."""
    workloads = [w for w in workloads if w.application in PARAMETERS]
    middle = {w.application: w for w in workloads}
    for name in middle:
        own = [w for w in workloads if w.application == name]
        middle[name] = own[len(own) // 2]
    errors: dict[str, list[float]] = defaultdict(list)
    for workload in workloads:
        others = [w for name, w in middle.items() if name != workload.application]
        tables = {
            "hops": table_of(workload, (), MODELS["hops"], others=others, seen_of_others=seen),
            "alone": table_of(workload, (), MODELS["hops"]),
        }
        for placement in workload.seconds:
            if placement != "1":
                real = workload.batch / workload.seconds[placement]
                for method, table in tables.items():
                    rate = per_gpu(table, *counts(placement))
                    errors[method].append(abs(rate / real - 1.0))
    return _compared(seen, errors)


def _compared(seen: Sequence[str], errors: Mapping[str, list[float]]) -> Compared:
    return Compared(
        ", ".join(seen),
        len(errors["hops"]),
        {name: float(np.mean(found)) for name, found in errors.items()},
        {name: float(np.median(found)) for name, found in errors.items()},
    )


def _changes(
    workloads: Sequence[Measured], since: Sequence[str], draw: random.Random
) -> Iterator[tuple[Measured, Measured]]:
    """Batch sizes of one application: now and before."""
    for now in workloads:
        others = [
            w
            for w in workloads
            if w.application == now.application
            and abs(w.batch - now.batch) > SAME * max(w.batch, now.batch)
        ]
        for before in draw.sample(others, min(CHANGES, len(others))):
            if set(BEFORE) <= set(before.seconds) and set(since) <= set(now.seconds):
                yield now, before
