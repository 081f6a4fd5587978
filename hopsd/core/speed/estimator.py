"""Throughput estimates: the operator's table, then the layers of section 3.3, top-down.

Records of one server answer with that server's factor, records of a GPU type with its two
tables. Where neither was measured, the theory layer answers: equations 1 to 5 from basic times.
Below it stands an assumption, so that a job of which nothing is known can be placed at all:
every GPU is as fast as one GPU elsewhere, ``assumed_gpu_speedup`` times as fast as a CPU, and
spreading costs ``assumed_sensitivity``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hopsd.core.devices import is_cpu
from hopsd.core.speed.layers import Layers, Table, Tables, by_workload, server_factors
from hopsd.core.speed.plausible import plausible_factors, plausible_tables
from hopsd.core.speed.theory import alone, basic_times, credible
from hopsd.core.speed.throughput import (
    BasicTimes,
    IterationModel,
    interpolate,
    theory_per_gpu,
)
from hopsd.model.cluster import Node
from hopsd.model.ids import GpuType, NodeName, WorkloadName
from hopsd.model.job import ThroughputTable
from hopsd.model.knowledge import Bandwidth, Knowledge, Theory

ASSUMED = "assumed"


@dataclass(frozen=True, slots=True)
class EstimatorSettings:
    """A layer answers from ``min_records``; weights halve every ``half_life_seconds``.

    ``bandwidth``: the operator's, instead of what calibration found.
    """

    min_records: int = 3
    half_life_seconds: float = 7 * 86400.0
    assumed_sensitivity: float = 1.5
    assumed_gpu_speedup: float = 4.0
    model: IterationModel = field(default_factory=IterationModel)
    bandwidth: tuple[Bandwidth, ...] = ()


@dataclass(frozen=True, slots=True)
class Estimate:
    """Tables by GPU type; factors of servers that differ from their type."""

    tables: Mapping[GpuType, ThroughputTable]
    server_factor: Mapping[NodeName, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """Samples per second per GPU, and the source of the estimate."""

    per_gpu: float
    source: str


class Estimator:
    """Estimates for all workloads of one tick: records are sorted once, each workload once."""

    def __init__(
        self,
        nodes: Sequence[Node],
        knowledge: Knowledge,
        settings: EstimatorSettings,
        now: float,
    ) -> None:
        self._knowledge = knowledge
        self._settings = settings
        self._largest: dict[GpuType, int] = {}
        self._servers: dict[GpuType, int] = defaultdict(int)
        for node in nodes:
            self._largest[node.gpu_type] = max(node.gpus, self._largest.get(node.gpu_type, 1))
            self._servers[node.gpu_type] += 1
        self._layers = by_workload(knowledge.records, settings.half_life_seconds, now)
        self._bandwidth = {b.gpu_type: b for b in (*knowledge.bandwidth, *settings.bandwidth)}
        self._theory: dict[WorkloadName, dict[GpuType, Theory]] = defaultdict(dict)
        for fit in filter(credible, knowledge.theory):
            self._theory[fit.workload][fit.gpu_type] = fit
        self._known: dict[WorkloadName, Estimate] = {}

    def estimate(self, workload: WorkloadName) -> Estimate:
        """Tables of one workload for all GPU types of the nodes."""
        if workload not in self._known:
            self._known[workload] = self._estimate(workload)
        return self._known[workload]

    def _estimate(self, workload: WorkloadName) -> Estimate:
        known = self._knowledge
        if workload in known.tables:
            return Estimate(known.tables[workload], known.server_factor.get(workload, {}))
        layers = self._layers.get(workload, Layers({}, {}, {}))
        least = self._settings.min_records
        measured = {t: tables.answering(least) for t, tables in layers.type.items()}
        theories = self._theory.get(workload, {})
        elsewhere = self._elsewhere(measured, theories) or 1.0
        tables = {
            gpu_type: self._table(
                gpu_type,
                measured.get(gpu_type, Tables()),
                self._base(gpu_type, theories.get(gpu_type), elsewhere * self._worth(gpu_type)),
            )
            for gpu_type in sorted(self._largest)
        }
        return Estimate(plausible_tables(tables), plausible_factors(server_factors(layers, least)))

    def _elsewhere(
        self, measured: Mapping[GpuType, Tables], theories: Mapping[GpuType, Theory]
    ) -> float | None:
        """Samples per second of one GPU on the mean of the types that are known."""
        spreading = self._settings.assumed_sensitivity
        worth = {t: self._worth(t) for t in [*measured, *theories]}
        together = [(t, m) for t, tables in measured.items() for m in tables.aggregated.values()]
        spread = [(t, m) for t, tables in measured.items() for m in tables.distributed.values()]
        return (
            _mean([m.per_gpu / worth[t] for t, m in together])
            or _mean([alone(theory) / worth[t] for t, theory in theories.items()])
            or _mean([m.per_gpu * spreading / worth[t] for t, m in spread])
        )

    def _worth(self, gpu_type: GpuType) -> float:
        """Of a device in GPUs, as far as nobody measured it."""
        return 1.0 / self._settings.assumed_gpu_speedup if is_cpu(gpu_type) else 1.0

    def _base(self, gpu_type: GpuType, theory: Theory | None, elsewhere: float) -> _Base:
        times = basic_times(theory, self._bandwidth.get(gpu_type)) if theory else None
        return _Base(
            alone(theory) if theory else elsewhere,
            f"theory, {_records(theory.records)}" if theory else ASSUMED,
            times,
            self._settings,
            self._largest[gpu_type],
        )

    def _table(self, gpu_type: GpuType, measured: Tables, base: _Base) -> ThroughputTable:
        together = _Column(measured.aggregated, base.together)
        spread = _Column(measured.distributed, base.spread)
        counts = {*range(1, self._largest[gpu_type] + 1), *measured.aggregated}
        aggregated = {n: together.answer(n, spread.ratio) for n in sorted(counts)}
        servers = _server_counts(self._servers[gpu_type], measured.distributed)
        distributed = {n: spread.answer(n, together.ratio) for n in servers}
        return ThroughputTable(
            aggregated={n: answer.per_gpu for n, answer in aggregated.items()},
            distributed={n: answer.per_gpu for n, answer in distributed.items()},
            source=aggregated[1].source,
            aggregated_source={n: answer.source for n, answer in aggregated.items()},
            distributed_source={n: answer.source for n, answer in distributed.items()},
        )


@dataclass(frozen=True, slots=True)
class _Base:
    """The layers that need no measured throughput: theory, and below it the assumption.

    ``alone``: samples per second of one GPU. ``times`` None: communication cannot be told.
    """

    alone: float
    source: str
    times: BasicTimes | None
    settings: EstimatorSettings
    largest: int

    def together(self, gpus: int) -> Answer:
        if gpus == 1:
            return Answer(self.alone, self.source)
        if self.times is None:
            return Answer(self.alone, ASSUMED)
        return Answer(theory_per_gpu(self.times, gpus, 1, self.settings.model), self.source)

    def spread(self, servers: int) -> Answer:
        """The table knows servers alone: a spread job is taken to hold half of each."""
        if self.times is None:
            return Answer(self.alone / self.settings.assumed_sensitivity, ASSUMED)
        gpus = servers * max(1, self.largest // 2)
        return Answer(theory_per_gpu(self.times, gpus, servers, self.settings.model), self.source)


class _Column:
    """One table of the type layer over the layers below it."""

    def __init__(self, measured: Table, base: Callable[[int], Answer]) -> None:
        self._measured = measured
        self._per_gpu = {n: m.per_gpu for n, m in measured.items()}
        self._base = base
        self._ratios = {n: rate / base(n).per_gpu for n, rate in self._per_gpu.items()}

    @property
    def ratio(self) -> float | None:
        """Mean of measured to base throughput; None where nothing was measured."""
        return _mean(list(self._ratios.values()))

    def answer(self, count: int, other_ratio: float | None) -> Answer:
        """Measured, or between two measured, or the layer below at the nearest one's scale.

        ``other_ratio`` is the scale where this table has nothing: a job that trains slower
        than theory says does so wherever it runs.
        """
        if count in self._measured:
            records = self._measured[count].records
            return Answer(self._per_gpu[count], f"type, {_records(records)}")
        below = [n for n in self._measured if n < count]
        above = [n for n in self._measured if n > count]
        if below and above:
            records = self._measured[max(below)].records + self._measured[min(above)].records
            return Answer(
                interpolate(self._per_gpu, count), f"type, {_records(records)} of neighbours"
            )
        base = self._base(count)
        ratio = other_ratio
        if self._ratios:
            ratio = self._ratios[max(below) if below else min(above)]
        if ratio is None:
            return base
        scaled = "" if base.source == ASSUMED else f", scaled by {ratio:.2f}"
        return Answer(ratio * base.per_gpu, base.source + scaled)


def _server_counts(servers: int, measured: Iterable[int]) -> list[int]:
    """Where a distributed table has entries: at measured counts, next to them, at powers of two.

    Readers interpolate between entries and take the last one beyond.
    """
    counts = {2} | {2**n for n in range(1, servers.bit_length()) if 2**n <= servers}
    for n in measured:
        counts |= {m for m in (n - 1, n, n + 1) if 2 <= m <= max(servers, n)}
    return sorted(counts)


def _records(count: int) -> str:
    return f"{count} record" if count == 1 else f"{count} records"


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
