"""Accuracy of hopsd's speeds for shapes never measured, from Pollux's measurements as records.

A workload is one application at one batch size. hopsd knows its basic times from one GPU and the
records of some shapes, as its store would hold them. It knows no bandwidth: the measurements come
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
from hopsd.core.speed.batches import NEWEST, SAME_SHARE
from hopsd.core.speed.estimator import Estimator, EstimatorSettings
from hopsd.core.speed.inferred import with_implied_bandwidths
from hopsd.core.speed.throughput import Communication, IterationModel, per_gpu
from hopsd.model.ids import GpuType, NodeName, WorkloadName
from hopsd.model.job import Node, ThroughputTable
from hopsd.model.knowledge import Knowledge, Theory, ThroughputRecord

T4, WORKLOAD = GpuType("t4"), WorkloadName("measured")
NODES = tuple(Node(NodeName(f"n{i}"), T4, 4, 4) for i in range(4))
MEASURED_SHAPES = ((), ("2",), ("4",), ("11",), ("22",), ("44",), ("4", "11"), ("4", "11", "44"))
RANDOM = (1, 2, 4, 8)
SHAPES_BEFORE = ("1", "4", "11", "44", "222")
"""Placements measured before the batch size changed, in :func:`changed_batch`."""

SHAPES_SINCE = (("1",), ("1", "2"), ("1", "4"), ("1", "11"), ("1", "2", "22"))
CHANGES = 3
"""Number of other batch sizes of the application, drawn for each workload."""

PARAMETERS = {"bert": 110e6, "cifar10": 11.2e6, "imagenet": 25.6e6, "yolov3": 61.9e6}
"""Parameters of BERT base, ResNet-18, ResNet-50 and YOLOv3, the known networks."""

SOURCE_SHAPES = (("11",), ("4", "11"), ("44",), ("4", "44"))

FEWEST = 20
"""Minimum number of shapes of a workload."""

MODELS = {
    "hops": IterationModel(communication=Communication.SWITCHED),
    "hops, ring": IterationModel(communication=Communication.RING),
    "paper_exact": IterationModel(paper_exact=True),
}


Records = tuple[ThroughputRecord, ...]


@dataclass(frozen=True, slots=True)
class MeasuredWorkload:
    """One application at one batch size: seconds of a step by placement, including ``1``."""

    application: str
    batch: float
    seconds: dict[str, float]


@dataclass(frozen=True, slots=True)
class Row:
    """Mean relative error of predicted throughput by method. ``within_spread`` is the share of
    measurements inside the range that hops predicts, which should be four of five.
    """

    shapes: str
    predictions: int
    errors: dict[str, float]
    medians: dict[str, float]
    within_spread: float


def read(folder: Path) -> list[MeasuredWorkload]:
    """Read all applications and batch sizes.

    Raises:
        OSError: a file is missing.
    """
    workloads = []
    for path in sorted(folder.glob("*.csv")):
        batches: dict[float, dict[str, float]] = {}
        with path.open() as file:
            for row in csv.DictReader(file):
                batch = batches.setdefault(float(row["local_bsz"]), {})
                batch[row["placement"]] = float(row["step_time"])
        workloads += [
            MeasuredWorkload(path.stem, batch, seconds)
            for batch, seconds in batches.items()
            if "1" in seconds and len(seconds) >= FEWEST
        ]
    return workloads


def table_of(
    workload: MeasuredWorkload,
    placements: Sequence[str],
    model: IterationModel,
    *,
    earlier_records: Records = (),
    sources: Sequence[MeasuredWorkload] = (),
    measured_of_sources: Sequence[str] = (),
) -> ThroughputTable:
    """hopsd's table, given records of ``placements`` and of ``sources``, and earlier records."""
    records = (*earlier_records, *records_of(workload, placements))
    fits = [_theory(workload, WORKLOAD)]
    for source in sources:
        name = WorkloadName(source.application)
        fits.append(_theory(source, name))
        records += tuple(replace(r, workload=name) for r in records_of(source, measured_of_sources))
    knowledge = Knowledge(records=records, theory=tuple(fits))
    settings = EstimatorSettings(model=model)
    knowledge = with_implied_bandwidths(knowledge, settings, 0.0)
    return Estimator(NODES, knowledge, settings, 0.0).estimate(WORKLOAD).tables[T4]


def _theory(workload: MeasuredWorkload, name: WorkloadName) -> Theory:
    """Basic times from one GPU, assuming that two thirds are backward."""
    alone = workload.seconds["1"]
    return Theory(
        name, T4, inference=False, pattern=2, batch_size=workload.batch,
        params=PARAMETERS.get(workload.application, 1e6),
        t_f=alone / 3, t_b=2 * alone / 3, t_u=0.0, p_cache=1.0, mu_cache=0.0, sigma_cache=0.0,
        mu_load=0.0, sigma_load=0.0, w_cache=0.0, w_load=0.0, records=3, iterations=50, at=0.0,
    )  # fmt: skip


def records_of(
    workload: MeasuredWorkload, placements: Sequence[str], begin: float = 0.0
) -> Records:
    """Records of each placement, as many as the estimator needs to trust them."""
    return tuple(
        ThroughputRecord(
            *(WORKLOAD, T4, node.name, *counts(placement)),
            workload.batch / workload.seconds[placement],
            begin + i / NEWEST,
            batch=workload.batch,
        )
        for placement in placements
        for node, _ in zip(NODES, placement, strict=False)
        for i in range(NEWEST)
    )


def counts(placement: str) -> tuple[int, int]:
    """GPUs and servers of a placement such as ``13``."""
    return sum(map(int, placement)), len(placement)


def row(
    workloads: Sequence[MeasuredWorkload],
    placements: Sequence[str],
    random_count: int,
    seed: int = 0,
) -> Row:
    """Errors over all placements except the known ones: ``placements`` and some random ones."""
    draw = random.Random(seed)
    errors: dict[str, list[float]] = {name: [] for name in (*MODELS, "Pollux")}
    within_spread = []
    for workload in workloads:
        if not set(placements) <= set(workload.seconds):
            continue
        candidates = [p for p in workload.seconds if p not in ("1", *placements)]
        known_placements = [*placements, *draw.sample(candidates, random_count)]
        unseen_placements = [p for p in candidates if p not in known_placements]
        # Placements of equal counts are one shape: a measured one is not predicted.
        shapes = {counts(p) for p in known_placements}
        unseen_placements = [p for p in unseen_placements if counts(p) not in shapes]
        real = np.array([workload.batch / workload.seconds[p] for p in unseen_placements])
        unseen_shapes = [counts(p) for p in unseen_placements]
        for name, model in MODELS.items():
            table = table_of(workload, known_placements, model)
            rates = np.array([per_gpu(table, *shape) for shape in unseen_shapes])
            errors[name] += np.abs(rates / real - 1.0).tolist()
            if name == "hops" and table.by_shape is not None:
                spread = [table.by_shape.interval(*shape) for shape in unseen_shapes]
                within_spread += [
                    low <= r <= high for (low, high), r in zip(spread, real, strict=True)
                ]
        fit_placements = ["1", *known_placements]
        fit = pollux.fit(
            [counts(p) for p in fit_placements], [workload.seconds[p] for p in fit_placements]
        )
        n, k = (np.array(column, dtype=float) for column in zip(*unseen_shapes, strict=True))
        errors["Pollux"] += np.abs(workload.batch / fit.seconds(n, k) / real - 1.0).tolist()
    label = ", ".join(placements) or "-"
    return Row(
        f"{random_count} random" if random_count else label,
        len(within_spread),
        {name: float(np.mean(values)) for name, values in errors.items()},
        {name: float(np.median(values)) for name, values in errors.items()},
        float(np.mean(within_spread)),
    )


def rows(workloads: Sequence[MeasuredWorkload]) -> list[Row]:
    """All rows of the table."""
    return [row(workloads, placements, 0) for placements in MEASURED_SHAPES] + [
        row(workloads, (), n) for n in RANDOM
    ]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Mean and median relative error of throughput, by method."""

    shapes: str
    predictions: int
    errors: dict[str, float]
    medians: dict[str, float]


def changed_batch(
    workloads: Sequence[MeasuredWorkload], placements: Sequence[str], seed: int = 0
) -> Comparison:
    """Errors at a new batch size at which only ``placements`` were measured."""
    draw = random.Random(seed)
    errors: dict[str, list[float]] = defaultdict(list)
    for new, old in _changes(workloads, placements, draw):
        old_records = records_of(old, SHAPES_BEFORE, -9.0)
        blind = tuple(replace(record, batch=0.0) for record in old_records)
        tables = {
            "hops": table_of(new, placements, MODELS["hops"], earlier_records=old_records),
            "forgotten": table_of(new, placements, MODELS["hops"]),
            "as if unchanged": table_of(new, placements, MODELS["hops"], earlier_records=blind),
        }
        measured_shapes = {counts(p) for p in placements}
        for placement in new.seconds:
            if counts(placement) in measured_shapes:
                continue
            real = new.batch / new.seconds[placement]
            for name, table in tables.items():
                errors[name].append(abs(per_gpu(table, *counts(placement)) / real - 1.0))
    return _comparison(placements, errors)


def new_application(workloads: Sequence[MeasuredWorkload], placements: Sequence[str]) -> Comparison:
    """Errors of an application measured on one GPU, given ``placements`` of all others."""
    workloads = [w for w in workloads if w.application in PARAMETERS]
    middle = {w.application: w for w in workloads}
    for name in middle:
        batches = [w for w in workloads if w.application == name]
        middle[name] = batches[len(batches) // 2]
    errors: dict[str, list[float]] = defaultdict(list)
    for workload in workloads:
        sources = [w for name, w in middle.items() if name != workload.application]
        tables = {
            "hops": table_of(
                workload, (), MODELS["hops"], sources=sources, measured_of_sources=placements
            ),
            "alone": table_of(workload, (), MODELS["hops"]),
        }
        for placement in workload.seconds:
            if placement != "1":
                real = workload.batch / workload.seconds[placement]
                for method, table in tables.items():
                    rate = per_gpu(table, *counts(placement))
                    errors[method].append(abs(rate / real - 1.0))
    return _comparison(placements, errors)


def _comparison(placements: Sequence[str], errors: Mapping[str, list[float]]) -> Comparison:
    return Comparison(
        ", ".join(placements),
        len(errors["hops"]),
        {name: float(np.mean(values)) for name, values in errors.items()},
        {name: float(np.median(values)) for name, values in errors.items()},
    )


def _changes(
    workloads: Sequence[MeasuredWorkload], placements: Sequence[str], draw: random.Random
) -> Iterator[tuple[MeasuredWorkload, MeasuredWorkload]]:
    """Pairs of batch sizes of one application: new and old."""
    for new in workloads:
        other_batches = [
            w
            for w in workloads
            if w.application == new.application
            and abs(w.batch - new.batch) > SAME_SHARE * max(w.batch, new.batch)
        ]
        for old in draw.sample(other_batches, min(CHANGES, len(other_batches))):
            if set(SHAPES_BEFORE) <= set(old.seconds) and set(placements) <= set(new.seconds):
                yield new, old
