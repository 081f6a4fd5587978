"""Table ``throughput``: what jobs reported of their speed."""

from __future__ import annotations

from collections.abc import Sequence

from hopsd.model.knowledge import ThroughputRecord
from hopsd.store.codec import encode
from hopsd.store.connection import Connection, insert

# Reports of one shape beyond this many would change its weighted mean little.
NEWEST = 32


def add(connection: Connection, records: Sequence[ThroughputRecord]) -> None:
    """A report that is there already stays one."""
    insert(
        connection,
        "throughput",
        [encode(record) for record in records],
        on_conflict="ON CONFLICT DO NOTHING",
    )


def newest(connection: Connection) -> tuple[ThroughputRecord, ...]:
    """The newest records of each workload and shape, oldest first."""
    rows = connection.execute(_NEWEST, [NEWEST])
    return tuple(ThroughputRecord(*row) for row in rows)


_NEWEST = """
SELECT workload, gpu_type, node, gpus, nodes, per_gpu, at
FROM (
    SELECT *, row_number() OVER (
        PARTITION BY workload, gpu_type, node, gpus, nodes ORDER BY at DESC, per_gpu
    ) AS place
    FROM throughput
) placed
WHERE place <= %s
ORDER BY at, workload, gpu_type, node, gpus, nodes, per_gpu
"""
