"""Stored rows become records by which nodes can be judged."""

from __future__ import annotations

import math
from typing import Any

from hopsd.health.records import EndState
from hopsd.serve.health import HealthService, health_records
from hopsd.store.past_runs import EndedRun, StoredStay
from hopsd.store.throughput import ReportedSpeed

NODES: list[dict[str, Any]] = [
    {"name": "n0", "gpu_type": "a", "gpus": 4},
    {"name": "n1", "gpu_type": "a", "gpus": 4},
    {"name": "login", "gpu_type": "", "gpus": 0},
]


def test_rows_of_present_nodes_and_known_ends_are_kept() -> None:
    speeds = [
        ReportedSpeed(10.0, "1", "net", 32.0, {"n0": 4}, 20.0),
        ReportedSpeed(11.0, "2", "net", 64.0, {"gone": 4}, 20.0),
    ]
    ends = [
        EndedRun(12.0, "1", "net", {"n0": 4}, "NODE_FAIL"),
        EndedRun(13.0, "2", "net", {"n0": 4}, "CANCELLED"),
        EndedRun(14.0, "3", "net", {"gone": 4}, "FAILED"),
    ]
    stays = [StoredStay("1", {"n0": 4}, 5.0, 12.0), StoredStay("2", {"n1": 4}, 6.0, None)]
    records = health_records(100.0, NODES, speeds, ends, stays)
    assert [(s.nodes, s.start, s.end) for s in records.stays] == [
        (("n0",), 5.0, 12.0),
        (("n1",), 6.0, math.inf),
    ]
    assert [node.name for node in records.nodes] == ["n0", "n1"]
    assert [(r.job, r.workload, r.seconds_per_iteration) for r in records.records] == [
        ("1", "net 32", 0.05)
    ]
    assert [(e.job, e.state) for e in records.ends] == [("1", EndState.NODE_FAIL)]


class CountingStore:
    def __init__(self) -> None:
        self.reads = 0

    def health(self, since: float) -> tuple[list[ReportedSpeed], list[EndedRun], list[StoredStay]]:
        self.reads += 1
        rows = [
            EndedRun(since + 10.0 * i, str(i), "net", {f"n{i % 2}": 4}, state)
            for i in range(200)
            for state in ["NODE_FAIL" if i % 4 == 0 else "COMPLETED"]
        ]
        return [], rows, []


def test_the_store_is_read_once_a_minute_at_most() -> None:
    store = CountingStore()
    service = HealthService(store)  # type: ignore[arg-type]
    first = service.health(NODES)
    assert [lemon.node for lemon in first.lemons] == ["n0"]
    assert service.health(NODES) is first
    assert store.reads == 1
