"""How fast a workload runs: operator's table, then measured records, then an assumption.

The layers of section 3.3: records of one server give that server's factor, records of a GPU
type give its two tables. Below them stands the assumption that every GPU is as fast as the
mean of what was measured, and that spreading costs ``assumed_sensitivity``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hopsd.model.cluster import Node
from hopsd.model.ids import GpuType, NodeName, WorkloadName
from hopsd.model.job import ThroughputTable
from hopsd.model.knowledge import Knowledge, ThroughputRecord


@dataclass(frozen=True, slots=True)
class EstimatorSettings:
    """``min_records`` from which a layer answers; weights halve every ``half_life_seconds``."""

    min_records: int = 3
    half_life_seconds: float = 7 * 86400.0
    assumed_sensitivity: float = 1.5


@dataclass(frozen=True, slots=True)
class Estimate:
    """Tables by GPU type; factors of servers that differ from their type."""

    tables: Mapping[GpuType, ThroughputTable]
    server_factor: Mapping[NodeName, float] = field(default_factory=dict)


@dataclass(slots=True)
class _Mean:
    """Exponentially weighted mean with its count."""

    weight: float = 0.0
    total: float = 0.0
    count: int = 0

    def add(self, value: float, weight: float) -> None:
        self.weight += weight
        self.total += weight * value
        self.count += 1

    @property
    def value(self) -> float:
        return self.total / self.weight


def estimate(
    workload: WorkloadName,
    counts: Sequence[int],
    nodes: Sequence[Node],
    knowledge: Knowledge,
    settings: EstimatorSettings,
    now: float,
) -> Estimate:
    """Tables of one workload for all GPU types of ``nodes``, at the GPU ``counts`` it may get."""
    if workload in knowledge.tables:
        return Estimate(knowledge.tables[workload], knowledge.server_factor.get(workload, {}))
    records = [r for r in knowledge.records if r.workload == workload]
    means = _by_shape(records, settings, now)
    scale = _mean(mean.value for mean in means.values()) or 1.0
    tables = {
        gpu_type: _table(gpu_type, counts, means, scale, settings)
        for gpu_type in sorted({node.gpu_type for node in nodes})
    }
    return Estimate(tables, _server_factors(records, means, settings, now))


_Shape = tuple[GpuType, bool, int]


def _shape(record: ThroughputRecord) -> _Shape:
    spread = record.nodes > 1
    return record.gpu_type, spread, record.nodes if spread else record.gpus


def _weight(record: ThroughputRecord, settings: EstimatorSettings, now: float) -> float:
    return float(0.5 ** (max(0.0, now - record.at) / settings.half_life_seconds))


def _by_shape(
    records: Iterable[ThroughputRecord], settings: EstimatorSettings, now: float
) -> dict[_Shape, _Mean]:
    means: dict[_Shape, _Mean] = defaultdict(_Mean)
    for record in records:
        means[_shape(record)].add(record.per_gpu, _weight(record, settings, now))
    return {shape: m for shape, m in means.items() if m.count >= settings.min_records}


def _table(
    gpu_type: GpuType,
    counts: Sequence[int],
    means: Mapping[_Shape, _Mean],
    scale: float,
    settings: EstimatorSettings,
) -> ThroughputTable:
    together = {n: m.value for (t, spread, n), m in means.items() if t == gpu_type and not spread}
    spread_out = {n: m.value for (t, spread, n), m in means.items() if t == gpu_type and spread}
    level = _mean(together.values()) or (
        (_mean(spread_out.values()) or 0.0) * settings.assumed_sensitivity or scale
    )
    source = "type" if together or spread_out else "assumed"
    aggregated = {1: level} | dict.fromkeys(counts, level) | _filled(together, counts)
    distributed = spread_out or {2: level / settings.assumed_sensitivity}
    return ThroughputTable(dict(sorted(aggregated.items())), distributed, source)


def _filled(measured: Mapping[int, float], counts: Sequence[int]) -> dict[int, float]:
    """Measured counts, and the asked ones between two measured neighbours by interpolation."""
    known = sorted(measured)
    filled = dict(measured)
    for n in counts:
        below = [k for k in known if k < n]
        above = [k for k in known if k > n]
        if n not in measured and below and above:
            low, high = below[-1], above[0]
            share = (n - low) / (high - low)
            filled[n] = measured[low] + share * (measured[high] - measured[low])
    return filled


def _server_factors(
    records: Sequence[ThroughputRecord],
    means: Mapping[_Shape, _Mean],
    settings: EstimatorSettings,
    now: float,
) -> dict[NodeName, float]:
    """A server's mean ratio to its type, over the shapes measured there."""
    ratios: dict[NodeName, _Mean] = defaultdict(_Mean)
    for record in records:
        shape = _shape(record)
        if shape in means:
            ratio = record.per_gpu / means[shape].value
            ratios[record.node].add(ratio, _weight(record, settings, now))
    return {n: m.value for n, m in sorted(ratios.items()) if m.count >= settings.min_records}


def _mean(values: Iterable[float]) -> float | None:
    known = list(values)
    return sum(known) / len(known) if known else None
