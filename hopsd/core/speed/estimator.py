"""Throughput estimates: the operator's table, then the layers of section 3.3, top-down.

Records of a server give its factor for a shape; records of a GPU type give the speed of the shapes
measured on it. Other shapes come from the theory layer: equations 1 to 5 with basic times,
corrected by the measured shapes (:mod:`hopsd.core.speed.by_shape`); under ``paper_exact`` they come
from the paper's tables (:mod:`hopsd.core.speed.by_count`).
The last layer is an assumption, so that even a job without any data can be placed: types compare
as they do for other workloads (:mod:`hopsd.core.speed.type_speeds`) or, if nothing is known, every
GPU is as fast as any other and ``assumed_gpu_speedup`` times as fast as a CPU. Spreading costs
``assumed_sensitivity``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import exp, log
from statistics import median_low

from hopsd.core.speed.across import (
    SCATTER,
    AcrossLeaves,
    below_one_leaf,
    implied_across,
    measured_across,
    theory_across,
)
from hopsd.core.speed.batches import carried_over, is_near
from hopsd.core.speed.by_count import Column, PaperBase
from hopsd.core.speed.by_shape import ALONE, OLDER, Belief, Speeds, regression, speeds_of
from hopsd.core.speed.layered import LayeredSpeeds
from hopsd.core.speed.layers import (
    Layers,
    MeasuredSpeed,
    Tables,
    by_workload,
    factors_by_shape,
    server_factors,
)
from hopsd.core.speed.plausible import plausible_factors, plausible_tables
from hopsd.core.speed.speed_answer import ASSUMED, record_count
from hopsd.core.speed.theory import (
    alone,
    basic_times,
    credible,
    scaled_to_speed,
    times_without_bandwidth,
)
from hopsd.core.speed.throughput import BasicTimes, IterationModel
from hopsd.model.devices import is_cpu
from hopsd.model.ids import GpuType, NodeName, WorkloadName, script_of
from hopsd.model.job import Node, Shape, ThroughputTable
from hopsd.model.knowledge import Bandwidth, Knowledge, Theory, ThroughputRecord

KNOWN_ALONE, UNKNOWN_ALONE = 0.05, 0.5
"""Standard deviation of the logarithm of a GPU's speed, from basic times and from other types."""

CALIBRATED_SD, UNCALIBRATED_SD = 0.5, 1.2
"""The same for communication time, with and without a measured bandwidth."""

INFERRED_SD = 0.7
"""The same, with a bandwidth that measured shapes imply (:mod:`hopsd.core.speed.inferred`)."""


@dataclass(frozen=True, slots=True)
class EstimatorSettings:
    """Settings of the estimator.

    A layer is used from ``min_records`` on; weights halve every ``half_life_seconds``.
    ``bandwidth``: the operator's figures, which override calibration.
    """

    min_records: int = 3
    half_life_seconds: float = 7 * 86400.0
    assumed_sensitivity: float = 1.5
    assumed_gpu_speedup: float = 4.0
    model: IterationModel = field(default_factory=IterationModel)
    bandwidth: tuple[Bandwidth, ...] = ()


@dataclass(frozen=True, slots=True)
class SpeedTables:
    """The speeds of a workload.

    ``tables``: by GPU type; ``server_factor``: factors of servers that differ from their type;
    ``server_factor_at``: the same by shape, where measured; ``across``: factors by number of leaf
    switches.
    """

    tables: Mapping[GpuType, ThroughputTable]
    server_factor: Mapping[NodeName, float] = field(default_factory=dict)
    server_factor_at: Mapping[Shape, Mapping[NodeName, float]] = field(default_factory=dict)
    across: AcrossLeaves = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Evidence:
    """The evidence about a workload on a type.

    ``theory`` comes from an older version of the program if ``is_outdated``; ``older``: speeds
    measured with that version; ``earlier``: speeds measured at the previous batch size.
    ``alone_elsewhere``: a GPU's speed inferred from other types. ``lender_type``: the type whose
    basic times ``theory`` scales, if any.
    """

    tables: Tables
    theory: Theory | None
    is_outdated: bool
    older: Mapping[Shape, MeasuredSpeed]
    earlier: Mapping[Shape, MeasuredSpeed]
    alone_elsewhere: float
    lender_type: GpuType | None = None

    @property
    def deviation(self) -> float:
        """Standard deviation of the logarithm of a GPU's speed."""
        if self.theory is None or self.lender_type is not None:
            return UNKNOWN_ALONE
        return OLDER if self.is_outdated else KNOWN_ALONE

    @property
    def source(self) -> str:
        """The source of estimates that are not measured."""
        if self.theory is None:
            return ASSUMED
        version = "older version's theory" if self.is_outdated else "theory"
        if self.lender_type is not None:
            version = f"theory from {self.lender_type}"
        return f"{version}, {record_count(self.theory.records)}"


class Estimator:
    """Estimates for all workloads of one tick; records are sorted and workloads estimated once."""

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
        records = knowledge.records
        if settings.model.paper_exact:  # the paper has no batch sizes
            records = tuple(replace(record, batch=0.0) for record in records)
        self._bandwidth = {b.gpu_type: b for b in knowledge.bandwidth}
        for setting in settings.bandwidth:
            calibration = self._bandwidth.get(setting.gpu_type, setting)
            self._bandwidth[setting.gpu_type] = replace(
                setting, b_across=setting.b_across or calibration.b_across
            )
        self._implied_bandwidth = {b.gpu_type: b for b in knowledge.implied}
        self._theory: dict[WorkloadName, dict[GpuType, Theory]] = defaultdict(dict)
        for fit in filter(credible, knowledge.theory):
            self._theory[fit.workload][fit.gpu_type] = fit
        self._versions: dict[str, dict[WorkloadName, float]] = defaultdict(dict)
        versions_in_use = [(record.workload, record.at) for record in knowledge.records]
        for name, last_use in versions_in_use + [
            (fit.workload, fit.at) for fit in knowledge.theory
        ]:
            if script := script_of(name):
                versions = self._versions[script]
                versions[name] = max(last_use, versions.get(name, last_use))
        self._estimates: dict[WorkloadName, SpeedTables] = {}
        self._records: dict[WorkloadName, list[ThroughputRecord]] | None = None
        self._measured_across: Mapping[WorkloadName, AcrossLeaves] = {}
        self._b_across: Mapping[GpuType, float] = {}
        if not settings.model.paper_exact:
            self._measured_across = self._measure_across(records)
            calibrated_bandwidths = {
                t: b.b_across for t, b in self._bandwidth.items() if b.b_across
            }
            self._b_across = {**self._imply_across(), **calibrated_bandwidths}
            spread = {record.workload for record in records if record.leaves > 1}
            records = below_one_leaf(records, {name: self._leaf_factors(name) for name in spread})
        self._layers = by_workload(records, settings.half_life_seconds, now)

    def _measure_across(
        self, records: Sequence[ThroughputRecord]
    ) -> Mapping[WorkloadName, AcrossLeaves]:
        spread = {record.workload for record in records if record.leaves > 1}
        by_name: dict[WorkloadName, list[ThroughputRecord]] = defaultdict(list)
        for record in records:
            if record.workload in spread:
                by_name[record.workload].append(record)
        factors_by_name = {
            workload: measured_across(workload_records, self._settings.min_records)
            for workload, workload_records in by_name.items()
        }
        return {
            workload: {1: 1.0, **factors}
            for workload, factors in factors_by_name.items()
            if factors
        }

    def _imply_across(self) -> dict[GpuType, float]:
        """Return parameters per second across leaves by type: the median of workloads' figures."""
        votes: dict[GpuType, list[float]] = defaultdict(list)
        for workload, factors in self._measured_across.items():
            for t, times, shape in self._network_times(workload):
                rate = implied_across(times, factors[min(factors.keys() - {1})], shape, self._model)
                if rate is not None:
                    votes[t].append(rate)
        return {t: median_low(rates) for t, rates in votes.items()}

    def _leaf_factors(self, workload: WorkloadName) -> AcrossLeaves:
        """Return factors by number of leaves: measured, or else predicted from basic times.

        The prediction is the geometric mean over types.
        """
        if workload in self._measured_across:
            return self._measured_across[workload]
        if not self._b_across:
            return {}
        factors = [
            theory_across(times, self._b_across[t], shape, self._model)
            for t, times, shape in self._network_times(workload)
            if t in self._b_across
        ]
        mean = exp(sum(map(log, factors)) / len(factors)) if factors else 1.0
        return {1: 1.0, 2: mean} if mean < 1.0 - SCATTER else {}

    @property
    def _model(self) -> IterationModel:
        return self._settings.model

    def _network_times(self, workload: WorkloadName) -> Iterator[tuple[GpuType, BasicTimes, Shape]]:
        """Yield a workload's basic times on types whose network is known, and two whole servers."""
        for t, theory in self._theory.get(workload, {}).items():
            bandwidth = self._bandwidth.get(t) or self._implied_bandwidth.get(t)
            times = basic_times(theory, bandwidth) if bandwidth else None
            if times is not None and not theory.inference and t in self._largest:
                yield t, times, (2 * self._largest[t], 2)

    def estimate(self, workload: WorkloadName) -> SpeedTables:
        """Return the tables of a workload for all GPU types of the nodes."""
        if workload not in self._estimates:
            self._estimates[workload] = self._estimate(workload)
        return self._estimates[workload]

    def records(self, workload: WorkloadName) -> Sequence[ThroughputRecord]:
        """Return the records that jobs of a workload reported."""
        if self._records is None:
            self._records = defaultdict(list)
            for record in self._knowledge.records:
                self._records[record.workload].append(record)
        return self._records.get(workload, ())

    def _estimate(self, workload: WorkloadName) -> SpeedTables:
        knowledge = self._knowledge
        if workload in knowledge.tables:
            return SpeedTables(
                knowledge.tables[workload],
                knowledge.server_factor.get(workload, {}),
                across=knowledge.across.get(workload, {}),
            )
        layers = self._layers.get(workload, Layers({}, {}, {}))
        min_records = self._settings.min_records
        tables_by_type = {t: tables.answering(min_records) for t, tables in layers.type.items()}
        theories = self._theory.get(workload, {})
        older_version = (
            None if self._settings.model.paper_exact else self._previous_version(workload)
        )
        older = (
            self._layers.get(older_version, Layers({}, {}, {}))
            if older_version
            else Layers({}, {}, {})
        )
        outdated_fits = self._theory.get(older_version, {}) if older_version else {}
        earlier_tables = {t: tables.answering(min_records) for t, tables in layers.earlier.items()}
        fits = {**outdated_fits, **theories}
        alone_elsewhere = (
            self._speed_on_other_types(tables_by_type, fits)
            or self._speed_on_other_types(earlier_tables, {})
            or 1.0
        )
        table = self._paper_table if self._settings.model.paper_exact else self._table
        lender = None if self._settings.model.paper_exact else _lending_theory(fits)

        def evidence(t: GpuType) -> _Evidence:
            speed = alone_elsewhere * self._relative_speed(t)
            direct = _Evidence(
                tables_by_type.get(t, Tables()),
                theories.get(t, outdated_fits.get(t)),
                t not in theories,
                older.type[t].answering(min_records).shapes if t in older.type else {},
                earlier_tables[t].shapes if t in earlier_tables else {},
                speed,
            )
            if direct.theory is not None or lender is None:
                return direct
            theory = scaled_to_speed(lender, t, speed)
            return replace(direct, theory=theory, lender_type=lender.gpu_type)

        tables = {t: table(t, evidence(t)) for t in sorted(self._largest)}
        factors = plausible_factors(server_factors(layers, min_records))
        if self._settings.model.paper_exact:
            return SpeedTables(plausible_tables(tables), factors)
        factors_at = {
            s: plausible_factors(factors_of_nodes)
            for s, factors_of_nodes in factors_by_shape(layers, min_records).items()
        }
        return SpeedTables(
            plausible_tables(tables), factors, factors_at, self._leaf_factors(workload)
        )

    def _previous_version(self, workload: WorkloadName) -> WorkloadName | None:
        """Return the newest other version of the workload's program (name after the last ``+``)."""
        versions = self._versions.get(script_of(workload), {})
        candidates = [(last_use, name) for name, last_use in versions.items() if name != workload]
        return max(candidates)[1] if candidates else None

    def _speed_on_other_types(
        self, tables_by_type: Mapping[GpuType, Tables], theories: Mapping[GpuType, Theory]
    ) -> float | None:
        """Return samples per second of one GPU: the mean over the known types."""
        sensitivity = self._settings.assumed_sensitivity
        worth = {t: self._relative_speed(t) for t in [*tables_by_type, *theories]}
        aggregated_measurements = [
            (t, m) for t, tables in tables_by_type.items() for m in tables.aggregated.values()
        ]
        spread = [
            (t, m) for t, tables in tables_by_type.items() for m in tables.distributed.values()
        ]
        return (
            _mean([m.per_gpu / worth[t] for t, m in aggregated_measurements])
            or _mean([alone(theory) / worth[t] for t, theory in theories.items()])
            or _mean([m.per_gpu * sensitivity / worth[t] for t, m in spread])
        )

    def _relative_speed(self, gpu_type: GpuType) -> float:
        """Return a device's relative speed for workloads not measured on it.

        It comes from other workloads, or else from an assumption.
        """
        if gpu_type in self._knowledge.type_speed:
            return self._knowledge.type_speed[gpu_type]
        return 1.0 / self._settings.assumed_gpu_speedup if is_cpu(gpu_type) else 1.0

    def _table(self, gpu_type: GpuType, evidence: _Evidence) -> ThroughputTable:
        settings, bandwidth = self._settings, self._bandwidth.get(gpu_type)
        theory, tables = evidence.theory, evidence.tables
        inferred_bandwidth = self._implied_bandwidth.get(gpu_type) if bandwidth is None else None
        times = basic_times(theory, bandwidth or inferred_bandwidth) if theory else None
        is_calibrated = times is not None
        if times is None:
            speed = alone(theory) if theory else evidence.alone_elsewhere
            times = times_without_bandwidth(
                theory, speed, settings.assumed_sensitivity, settings.model
            )
        communication, source = UNCALIBRATED_SD, ASSUMED
        if is_calibrated and inferred_bandwidth:
            communication = INFERRED_SD
            source = f"{evidence.source}, bandwidth inferred"
        elif is_calibrated:
            communication, source = CALIBRATED_SD, evidence.source
        belief = Belief(times, evidence.deviation, communication, communication)
        shapes = tables.shapes
        older = dict(speeds_of(evidence.older))
        if theory is not None and not evidence.is_outdated:
            older |= _carried_speeds(evidence.earlier, shapes, theory)
        speeds = LayeredSpeeds(
            regression(belief, settings.model, speeds_of(shapes), tuple(sorted(older.items()))),
            shapes,
            evidence.source,
            source,
        )
        largest = self._largest[gpu_type]
        counts = sorted({*range(1, largest + 1), *tables.aggregated})
        servers = _server_counts(self._servers[gpu_type], tables.distributed)
        half = max(1, largest // 2)
        return ThroughputTable(
            aggregated={n: speeds.per_gpu(n, 1) for n in counts},
            distributed={n: speeds.per_gpu(n * half, n) for n in servers},
            source=speeds.source(1, 1),
            aggregated_source={n: speeds.source(n, 1) for n in counts},
            distributed_source={n: speeds.source(n * half, n) for n in servers},
            by_shape=speeds,
        )

    def _paper_table(self, gpu_type: GpuType, evidence: _Evidence) -> ThroughputTable:
        theory, tables = evidence.theory, evidence.tables
        model = self._settings.model
        base = PaperBase(
            alone(theory, model) if theory else evidence.alone_elsewhere,
            evidence.source,
            basic_times(theory, self._bandwidth.get(gpu_type)) if theory else None,
            model,
            self._settings.assumed_sensitivity,
            self._largest[gpu_type],
        )
        aggregated_column = Column(tables.aggregated, base.one_server)
        spread = Column(tables.distributed, base.spread)
        counts = {*range(1, self._largest[gpu_type] + 1), *tables.aggregated}
        aggregated_answers = {n: aggregated_column.answer(n, spread.ratio) for n in sorted(counts)}
        servers = _server_counts(self._servers[gpu_type], tables.distributed)
        distributed_answers = {n: spread.answer(n, aggregated_column.ratio) for n in servers}
        return ThroughputTable(
            aggregated={n: answer.per_gpu for n, answer in aggregated_answers.items()},
            distributed={n: answer.per_gpu for n, answer in distributed_answers.items()},
            source=aggregated_answers[1].source,
            aggregated_source={n: answer.source for n, answer in aggregated_answers.items()},
            distributed_source={n: answer.source for n, answer in distributed_answers.items()},
        )


def _lending_theory(fits: Mapping[GpuType, Theory]) -> Theory | None:
    """Return the basic times that types without any borrow: the newest of a training.

    Those on GPUs take precedence over those on CPUs.
    """
    training = [fit for fit in fits.values() if not fit.inference]
    return max(
        training, key=lambda fit: (not is_cpu(fit.gpu_type), fit.at, fit.gpu_type), default=None
    )


def _carried_speeds(
    earlier_speeds: Mapping[Shape, MeasuredSpeed],
    present: Mapping[Shape, MeasuredSpeed],
    theory: Theory,
) -> Speeds:
    """Convert speeds measured at the previous batch size to the present one (``theory``'s).

    This is done only for shapes with the same batch per GPU as a single GPU had: if a program
    divides its batch, each shape has a different one.
    """
    size = earlier_speeds[ALONE].batch if ALONE in earlier_speeds else 0.0
    earlier_seconds = {
        s: m.iteration_seconds for s, m in earlier_speeds.items() if is_near(m.batch, size)
    }
    present_seconds = {
        s: m.iteration_seconds for s, m in present.items() if is_near(m.batch, theory.batch_size)
    }
    present_seconds.setdefault(ALONE, theory.batch_size / alone(theory))
    converted_seconds = carried_over(earlier_seconds, present_seconds)
    return tuple(
        (shape, float(f"{theory.batch_size / seconds:.12g}"))
        for shape, seconds in sorted(converted_seconds.items())
        if shape not in present
    )


def _server_counts(servers: int, measured_counts: Iterable[int]) -> list[int]:
    """Return the entries of a distributed table: measured counts, their neighbours, powers of two.

    Readers interpolate between entries, and use the last entry for larger counts.
    """
    counts = {2} | {2**n for n in range(1, servers.bit_length()) if 2**n <= servers}
    for n in measured_counts:
        counts |= {m for m in (n - 1, n, n + 1) if 2 <= m <= max(servers, n)}
    return sorted(counts)


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
