"""The two measured layers of section 3.3: throughput by server, and by GPU type."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, sqrt
from math import pow as power
from typing import TypeVar

from hopsd.core.speed.batches import split
from hopsd.model import bounds
from hopsd.model.ids import GpuType, NodeName, UserName, WorkloadName
from hopsd.model.job import Shape
from hopsd.model.knowledge import ThroughputRecord

T = TypeVar("T")
Key = TypeVar("Key", int, Shape, NodeName, GpuType)

MIN_WEIGHT = 1e-100
"""The minimum weight: records hundreds of half-lives old all count the same."""


def weight_of(age_seconds: float, half_life_seconds: float) -> float:
    """Return the weight of a measurement by its age; never 0, since it may be the only one."""
    return max(power(0.5, max(0.0, age_seconds) / half_life_seconds), MIN_WEIGHT)


@dataclass(slots=True)
class MeasuredSpeed:
    """Exponentially weighted mean of samples per second per GPU, and its number of records.

    ``batch_weight``: total weight of the records with a batch size; ``batch_sum`` and
    ``seconds_sum``: weighted sums of their batches and of their seconds per iteration.
    """

    weight: float = 0.0
    total: float = 0.0
    squares: float = 0.0
    records: int = 0
    newest: float = 0.0
    first: float = inf
    batch_weight: float = 0.0
    batch_sum: float = 0.0
    seconds_sum: float = 0.0

    def add(self, record: ThroughputRecord, weight: float) -> None:
        value, time = record.per_gpu, record.at
        self.weight += weight
        self.total += weight * value
        self.squares += weight * value * value
        self.records += 1
        self.newest = max(self.newest, time)
        self.first = min(self.first, time)
        if record.batch > 0.0:
            self.batch_weight += weight
            self.batch_sum += weight * record.batch
            self.seconds_sum += weight * record.batch / value

    @property
    def per_gpu(self) -> float:
        return self.total / self.weight

    @property
    def batch(self) -> float:
        """Samples of an iteration per GPU, 0 if unknown."""
        return self.batch_sum / self.batch_weight if self.batch_weight else 0.0

    @property
    def iteration_seconds(self) -> float:
        """Seconds of an iteration, 0 if the batch is unknown."""
        return self.seconds_sum / self.batch_weight if self.batch_weight else 0.0

    @property
    def deviation(self) -> float:
        """Standard deviation of a record, relative to the mean."""
        variance = self.squares / self.weight - self.per_gpu**2
        return sqrt(max(0.0, variance)) / self.per_gpu


Table = dict[int, MeasuredSpeed]
ShapeTable = dict[Shape, MeasuredSpeed]


def _table() -> Table:
    return defaultdict(MeasuredSpeed)


def _shape_table() -> ShapeTable:
    return defaultdict(MeasuredSpeed)


@dataclass(slots=True)
class Tables:
    """The measured speeds of a layer.

    ``aggregated``: by GPU count in one server; ``spread``: by GPUs and servers; ``distributed``: by
    number of servers only, as in the paper's table.
    """

    aggregated: Table = field(default_factory=_table)
    distributed: Table = field(default_factory=_table)
    spread: ShapeTable = field(default_factory=_shape_table)

    def add(self, record: ThroughputRecord, weight: float) -> None:
        """Add a record to the table of its shape."""
        if record.nodes == 1:
            self.aggregated[record.gpus].add(record, weight)
            return
        self.distributed[record.nodes].add(record, weight)
        self.spread[record.gpus, record.nodes].add(record, weight)

    @property
    def shapes(self) -> ShapeTable:
        """All measurements, by GPUs and servers."""
        return {(gpus, 1): m for gpus, m in self.aggregated.items()} | self.spread

    def answering(self, min_records: int) -> Tables:
        """Return the counts and shapes with at least ``min_records``."""
        return Tables(
            _with_enough_records(self.aggregated, min_records),
            _with_enough_records(self.distributed, min_records),
            _with_enough_records(self.spread, min_records),
        )


def _with_enough_records(
    table: Mapping[Key, MeasuredSpeed], min_records: int
) -> dict[Key, MeasuredSpeed]:
    return {n: m for n, m in sorted(table.items()) if m.records >= min_records}


@dataclass(slots=True)
class Layers:
    """Entity and type layers of one workload. Every entity record also counts for its type.

    ``earlier``: by type, the measurements at the previous batch size.
    """

    entity: Mapping[NodeName, Tables]
    type: Mapping[GpuType, Tables]
    types: Mapping[NodeName, GpuType]
    earlier: Mapping[GpuType, Tables] = field(default_factory=dict)


def median_of_users(reports: Sequence[tuple[float, float, T]]) -> T:
    """Return the median user's value; ``reports``: per user a speed, its first time, and a value.

    Of two users in the middle, the earlier one counts, so that a single newcomer cannot change the
    estimates of a workload.
    """
    sorted_reports = sorted(reports, key=lambda report: report[:2])
    middle = sorted_reports[(len(sorted_reports) - 1) // 2 : len(sorted_reports) // 2 + 1]
    return min(middle, key=lambda report: report[1])[2]


def by_workload(
    records: Iterable[ThroughputRecord], half_life_seconds: float, now: float
) -> dict[WorkloadName, Layers]:
    """Return the layers of every workload; a record's weight halves every ``half_life_seconds``.

    Speeds out of bounds, which earlier releases may have stored, are ignored. If several users
    report on a workload, each shape's speed is the median user's.
    """
    users: dict[WorkloadName, dict[UserName, list[ThroughputRecord]]] = {}
    for record in records:
        if bounds.SPEED.holds(record.per_gpu):
            users.setdefault(record.workload, {}).setdefault(record.user, []).append(record)
    by_name = {}
    for workload, by_user in users.items():
        layers = [
            _user_layers(user_records, half_life_seconds, now) for user_records in by_user.values()
        ]
        by_name[workload] = layers[0] if len(layers) == 1 else _median(layers)
    return by_name


def _user_layers(
    records: Iterable[ThroughputRecord], half_life_seconds: float, now: float
) -> Layers:
    layers = Layers(defaultdict(Tables), defaultdict(Tables), {}, defaultdict(Tables))
    present, earlier_records = split(records)

    def add(tables: Tables, record: ThroughputRecord) -> None:
        tables.add(record, weight_of(now - record.at, half_life_seconds))

    for record in earlier_records:
        add(layers.earlier[record.gpu_type], record)
    for record in present:
        add(layers.entity[record.node], record)
        add(layers.type[record.gpu_type], record)
        layers.types[record.node] = record.gpu_type  # type: ignore[index]
    return layers


def _median(layers: Sequence[Layers]) -> Layers:
    """Return the median user's value, entry by entry."""
    return Layers(
        _median_tables([user_layers.entity for user_layers in layers]),
        _median_tables([user_layers.type for user_layers in layers]),
        {node: t for user_layers in layers for node, t in user_layers.types.items()},
        _median_tables([user_layers.earlier for user_layers in layers]),
    )


def _median_tables(by_user: Sequence[Mapping[Key, Tables]]) -> dict[Key, Tables]:
    keys = {key for tables in by_user for key in tables}
    return {
        key: Tables(
            _median_table([tables[key].aggregated for tables in by_user if key in tables]),
            _median_table([tables[key].distributed for tables in by_user if key in tables]),
            _median_table([tables[key].spread for tables in by_user if key in tables]),
        )
        for key in keys
    }


def _median_table(by_user: Sequence[Mapping[Key, MeasuredSpeed]]) -> dict[Key, MeasuredSpeed]:
    return {
        n: median_of_users([(t[n].per_gpu, t[n].first, t[n]) for t in by_user if n in t])
        for n in sorted({n for table in by_user for n in table})
    }


def server_factors(layers: Layers, min_records: int) -> dict[NodeName, float]:
    """Return the entity layer: the mean speed of servers with enough records, relative to the type.

    It is based on runs within a server, if there are any: a spread run is as fast as its slowest
    server, which says little about the others.
    """
    factors = {}
    for node, tables in sorted(layers.entity.items()):
        type_tables = layers.type[layers.types[node]].answering(min_records)
        node_tables = tables.answering(min_records)
        ratio = _ratio(node_tables.aggregated, type_tables.aggregated)
        if ratio is None:
            ratio = _ratio(node_tables.spread, type_tables.spread)
        if ratio is not None:
            factors[node] = ratio
    return factors


def factors_by_shape(layers: Layers, min_records: int) -> dict[Shape, dict[NodeName, float]]:
    """Return server factors by shape, for servers that have enough records of the shape."""
    factors: dict[Shape, dict[NodeName, float]] = {}
    shapes = {gpu_type: tables.shapes for gpu_type, tables in layers.type.items()}
    for node, tables in sorted(layers.entity.items()):
        type_speeds = shapes[layers.types[node]]
        for shape, speed in tables.answering(min_records).shapes.items():
            factors.setdefault(shape, {})[node] = speed.per_gpu / type_speeds[shape].per_gpu
    return factors


def _ratio(
    node_speeds: Mapping[Key, MeasuredSpeed], type_speeds: Mapping[Key, MeasuredSpeed]
) -> float | None:
    """Return the mean ratio over the counts, weighted by the server's records; None if none.

    With several users, a type may have too few records of a count of which the server has enough,
    since both use the records of their median user.
    """
    common = {n: speed for n, speed in node_speeds.items() if n in type_speeds}
    total = sum(speed.weight for speed in common.values())
    if total <= 0.0:
        return None
    weighted_ratios = (m.weight * m.per_gpu / type_speeds[n].per_gpu for n, m in common.items())
    return sum(weighted_ratios) / total
