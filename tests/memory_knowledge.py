"""What `MemoryStore` keeps about the speed of workloads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from hopsd.model.ids import GpuType, UserName, WorkloadName
from hopsd.model.knowledge import Bandwidth, PhaseRecord, Shortage, Theory, ThroughputRecord
from hopsd.store.throughput import NEWEST, NEWEST_PHASES, last_of_process


class MemoryKnowledge:
    """Records and fits in dictionaries; as in PostgreSQL, only the newest count."""

    def __init__(self) -> None:
        self._throughput: dict[ThroughputRecord, ThroughputRecord] = {}
        self._phases: dict[tuple[object, ...], PhaseRecord] = {}
        self._theory: dict[tuple[WorkloadName, GpuType], Theory] = {}
        self._bandwidth: dict[GpuType, Bandwidth] = {}
        self._shortages: dict[tuple[UserName, WorkloadName, GpuType], Shortage] = {}

    def add_throughput(self, records: Sequence[ThroughputRecord]) -> None:
        self._throughput.update((record, record) for record in records)

    def _newest_throughput(self, *, gpu: bool = False) -> tuple[ThroughputRecord, ...]:
        """Newest records of throughput; with ``gpu``, per GPU where that is known."""
        shapes: dict[tuple[str | int | None, ...], list[ThroughputRecord]] = {}
        for record in sorted(self._throughput, key=lambda r: (-r.at, r.per_gpu)):
            shape = (*_shape(record), record.gpu if gpu else None)
            shapes.setdefault(shape, []).append(record)
        newest_records = [record for shape in shapes.values() for record in shape[:NEWEST]]
        return tuple(sorted(newest_records, key=lambda r: (r.at, _shape(r), r.per_gpu)))

    def add_phases(self, records: Iterable[PhaseRecord]) -> None:
        self._phases.update(last_of_process(records))

    def phases(self, workload: WorkloadName, gpu_type: GpuType) -> tuple[PhaseRecord, ...]:
        phase_rows = [
            (-record.at, key[2:], record)
            for key, record in self._phases.items()
            if key[:2] == (workload, gpu_type)
        ]
        newest, of_user = [], Counter[str]()
        for *_, record in sorted(phase_rows, key=lambda item: item[:2]):
            of_user[record.user] += 1
            if of_user[record.user] <= NEWEST_PHASES:
                newest.append(record)
        return tuple(newest)

    def _prune_reports(self, before: float) -> dict[str, int]:
        """Drop reports from before ``before``, and those that newer ones have superseded."""
        counts = len(self._throughput), len(self._phases)
        self._throughput = {r: r for r in self._newest_throughput(gpu=True) if r.at >= before}
        pairs = {(record.workload, record.gpu_type) for record in self._phases.values()}
        newest = [record for pair in pairs for record in self.phases(*pair)]
        self._phases = last_of_process(r for r in newest if r.at >= before)
        return {
            "throughput": counts[0] - len(self._throughput),
            "phases": counts[1] - len(self._phases),
        }

    def save_theory(self, fits: Iterable[Theory]) -> None:
        self._theory.update({(fit.workload, fit.gpu_type): fit for fit in fits})

    def save_bandwidth(self, bandwidths: Iterable[Bandwidth]) -> None:
        self._bandwidth.update({bandwidth.gpu_type: bandwidth for bandwidth in bandwidths})

    def save_shortages(self, shortages: Iterable[Shortage]) -> None:
        for new in shortages:
            key = new.user, new.workload, new.gpu_type
            old = self._shortages.get(key, new)
            gpus, at = max(old.gpus, new.gpus), max(old.at, new.at)
            self._shortages[key] = replace(new, gpus=gpus, at=at)


def _shape(record: ThroughputRecord) -> tuple[str, str, str, int, int, str]:
    place = record.workload, record.gpu_type, record.node
    return (*place, record.gpus, record.nodes, record.user)
