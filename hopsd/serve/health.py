"""Judges slow nodes and nodes that break jobs from hopsd's stored records, when somebody asks."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any

from hopsd.health.records import (
    EndState,
    Health,
    HealthNode,
    HealthRecords,
    JobEnd,
    SpeedRecord,
    Stay,
)
from hopsd.model.ids import GpuType, JobId, NodeName, WorkloadName
from hopsd.store.past_runs import EndedRun, StoredStay
from hopsd.store.postgres import PostgresStore
from hopsd.store.throughput import ReportedSpeed

HISTORY_SECONDS = 30 * 86_400.0
"""Reports and ends of jobs that are older are ignored."""

KEPT_SECONDS = 60.0
"""Answers are cached for this long."""


class HealthService:
    """Judges outside the tick, in the thread that asks, one request at a time."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._verdict: tuple[float, Health] | None = None

    def health(self, nodes: Iterable[Mapping[str, Any]]) -> Health:
        """Return the verdicts on ``nodes``, rows of the status document."""
        from hopsd.health.judge import judge  # noqa: PLC0415  # scipy is slow to import

        with self._lock:
            now = time.monotonic()
            if self._verdict is None or now - self._verdict[0] >= KEPT_SECONDS:
                stored_records = self._store.health(time.time() - HISTORY_SECONDS)
                self._verdict = now, judge(health_records(time.time(), nodes, *stored_records))
            return self._verdict[1]


def health_records(
    now: float,
    nodes: Iterable[Mapping[str, Any]],
    speeds: Iterable[ReportedSpeed],
    ends: Iterable[EndedRun],
    stays: Iterable[StoredStay] = (),
) -> HealthRecords:
    """Convert stored rows to records; rows with a node that no longer exists are left out.

    Times are seconds per sample and GPU: within a workload and batch size they compare as
    iteration times do.
    """
    records = tuple(
        HealthNode(NodeName(n["name"]), GpuType(n["gpu_type"]), n["gpus"])
        for n in nodes
        if n["gpus"] > 0
    )
    names = {node.name for node in records}
    states = {state.value for state in EndState}
    return HealthRecords(
        now,
        records,
        tuple(
            SpeedRecord(
                row.at,
                WorkloadName(f"{row.workload} {row.batch:g}"),
                JobId(row.job),
                _nodes(row.nodes),
                1.0 / row.per_gpu,
                gpu=row.gpu,
            )
            for row in speeds
            if names.issuperset(row.nodes)
        ),
        tuple(
            JobEnd(
                row.at,
                JobId(row.job),
                WorkloadName(row.workload),
                _nodes(row.nodes),
                EndState(row.state),
            )
            for row in ends
            if row.state in states and names.issuperset(row.nodes)
        ),
        tuple(
            Stay(
                JobId(row.job),
                tuple(map(NodeName, row.nodes)),
                row.start,
                math.inf if row.end is None else row.end,
            )
            for row in stays
        ),
    )


def _nodes(nodes: Mapping[str, int]) -> dict[NodeName, int]:
    return {NodeName(name): gpus for name, gpus in nodes.items()}
