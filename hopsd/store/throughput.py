"""Measurements: tables ``throughput``, ``phases``, ``theory``, ``bandwidth``, ``shortages``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import LiteralString

from hopsd.model.ids import GpuType, WorkloadName
from hopsd.model.knowledge import Bandwidth, PhaseRecord, Shortage, Theory, ThroughputRecord
from hopsd.store.codec import decode, encode
from hopsd.store.connection import Connection, insert

# More reports than this per shape would hardly change its weighted mean.
NEWEST = 32

NEWEST_PHASES = 64
"""How many processes of one user, workload and type basic times are fitted to."""


def add(connection: Connection, records: Sequence[ThroughputRecord]) -> None:
    """Insert reports, ignoring duplicates."""
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
SELECT workload, gpu_type, node, gpus, nodes, per_gpu, at, "user", batch, leaves, job, gpu
FROM (
    SELECT *, row_number() OVER (
        PARTITION BY workload, gpu_type, node, gpus, nodes, "user", leaves
        ORDER BY at DESC, per_gpu
    ) AS place
    FROM throughput
) placed
WHERE place <= %s
ORDER BY at, workload, gpu_type, node, gpus, nodes, per_gpu
"""


def _shape(record: ThroughputRecord) -> tuple[str | int, ...]:
    r = record
    return (r.workload, r.gpu_type, r.node, r.gpus, r.nodes, r.user, r.leaves)


Stamp = tuple[int, float | None]
"""The number of stored reports and the time of the last; it changes whenever one is written."""


def stamp(connection: Connection) -> Stamp:
    count, last = connection.execute("SELECT count(*), max(at) FROM throughput").fetchone() or (
        0,
        None,
    )
    return count, last


class NewestRecords:
    """Cache of the records of :func:`newest` that the leading hopsd last read, and added since.

    Every plan needs them, and reading 120,000 takes a second. The cache is valid for one leadership
    ``term`` (empty with None, no leader) and one ``stamp``: `hopsctl calibrate` adds records, too.
    """

    def __init__(self) -> None:
        self._term: object | None = None
        self._stamp: Stamp = (0, None)
        self._shapes: dict[tuple[str | int, ...], list[ThroughputRecord]] = {}
        self._all: tuple[ThroughputRecord, ...] | None = None

    def get(self, term: object | None, now: Stamp) -> tuple[ThroughputRecord, ...] | None:
        """All records, oldest first; None if they must be read."""
        if term is None or term is not self._term or now != self._stamp:
            return None
        if self._all is None:
            stored_records = [record for records in self._shapes.values() for record in records]
            self._all = tuple(sorted(stored_records, key=lambda r: (r.at, _shape(r), r.per_gpu)))
        return self._all

    def keep(self, term: object | None, now: Stamp, records: Sequence[ThroughputRecord]) -> None:
        """Cache records read in this term."""
        self._term, self._stamp = term, now
        self._shapes, self._all = {}, tuple(records)
        if term is not None:
            for record in records:
                self._shapes.setdefault(_shape(record), []).append(record)

    def add(self, before: Stamp, after: Stamp, records: Iterable[ThroughputRecord]) -> None:
        """Cache records just written; ``before`` and ``after`` are the stamps around the write."""
        if self._term is None or before != self._stamp:
            self.forget()
            return
        self._stamp = after
        for new_record in records:
            record = decode(ThroughputRecord, encode(new_record))
            shape = self._shapes.setdefault(_shape(record), [])
            if not any((old.at, old.per_gpu) == (record.at, record.per_gpu) for old in shape):
                shape.append(record)
                shape.sort(key=lambda r: (-r.at, r.per_gpu))
                del shape[NEWEST:]
                self._all = None

    def forget(self) -> None:
        """Clear the cache after rows were deleted or a write failed."""
        self._term, self._shapes, self._all = None, {}, None


def add_phases(connection: Connection, records: Iterable[PhaseRecord]) -> None:
    """Insert reports; a process's last report replaces its previous one."""
    insert(
        connection,
        "phases",
        [encode(record) for record in last_of_process(records).values()],
        on_conflict="ON CONFLICT (workload, gpu_type, job, run, node, rank, pid) DO UPDATE"
        " SET world = excluded.world, at = excluded.at, phases = excluded.phases,"
        ' "user" = excluded."user"',
    )


def last_of_process(records: Iterable[PhaseRecord]) -> dict[tuple[object, ...], PhaseRecord]:
    """The last record of each process: PostgreSQL cannot write a row twice in one statement."""
    return {(r.workload, r.gpu_type, r.job, r.run, r.node, r.rank, r.pid): r for r in records}


def phases(
    connection: Connection, workload: WorkloadName, gpu_type: GpuType
) -> tuple[PhaseRecord, ...]:
    """The newest records of a workload on a type, for each user, the newest first."""
    rows = connection.execute(
        "SELECT row FROM (SELECT to_json(p) AS row, p.*, row_number() OVER ("
        'PARTITION BY "user" ORDER BY at DESC, job, run, node, rank, pid) AS place'
        " FROM phases p WHERE workload = %s AND gpu_type = %s) placed WHERE place <= %s"
        " ORDER BY at DESC, job, run, node, rank, pid",
        [workload, gpu_type, NEWEST_PHASES],
    )
    return tuple(decode(PhaseRecord, row) for (row,) in rows)


def prune(connection: Connection, before: float) -> dict[str, int]:
    """Delete reports older than ``before``, and those superseded by newer ones.

    A job reports at every tick: 300 jobs would leave 80 million rows in 90 days.
    """
    return {
        table: connection.execute(statement, {"before": before, "newest": newest}).rowcount
        for table, (statement, newest) in _PRUNE.items()
    }


_PRUNE: dict[str, tuple[LiteralString, int]] = {
    "throughput": (
        """
        DELETE FROM throughput t USING (
            SELECT ctid, row_number() OVER (
                PARTITION BY workload, gpu_type, node, gpus, nodes, "user", leaves, gpu
                ORDER BY at DESC, per_gpu
            ) AS place FROM throughput
        ) placed
        WHERE t.ctid = placed.ctid AND (t.at < %(before)s OR place > %(newest)s)
        """,
        NEWEST,
    ),
    "phases": (
        """
        DELETE FROM phases p USING (
            SELECT ctid, row_number() OVER (
                PARTITION BY workload, gpu_type, "user"
                ORDER BY at DESC, job, run, node, rank, pid
            ) AS place FROM phases
        ) placed
        WHERE p.ctid = placed.ctid AND (p.at < %(before)s OR place > %(newest)s)
        """,
        NEWEST_PHASES,
    ),
}


def save_theory(connection: Connection, fits: Iterable[Theory]) -> None:
    rows = [encode(fit) for fit in fits]
    if rows:
        insert(connection, "theory", rows, on_conflict=_replace("workload, gpu_type", rows[0]))


def theory(connection: Connection) -> tuple[Theory, ...]:
    rows = connection.execute("SELECT to_json(t) FROM theory t ORDER BY workload, gpu_type")
    return tuple(decode(Theory, row) for (row,) in rows)


def save_bandwidth(connection: Connection, bandwidths: Iterable[Bandwidth]) -> None:
    rows = [encode(bandwidth) for bandwidth in bandwidths]
    if rows:
        insert(connection, "bandwidth", rows, on_conflict=_replace("gpu_type", rows[0]))


def bandwidth(connection: Connection) -> tuple[Bandwidth, ...]:
    rows = connection.execute("SELECT to_json(b) FROM bandwidth b ORDER BY gpu_type")
    return tuple(decode(Bandwidth, row) for (row,) in rows)


def save_shortages(connection: Connection, shortages: Iterable[Shortage]) -> None:
    """Insert or update; existing rows keep the larger GPU count and the later time."""
    insert(
        connection,
        "shortages",
        [encode(shortage) for shortage in worst_of_workload(shortages).values()],
        on_conflict='ON CONFLICT ("user", workload, gpu_type) DO UPDATE'
        " SET gpus = greatest(shortages.gpus, excluded.gpus),"
        " at = greatest(shortages.at, excluded.at)",
    )


def worst_of_workload(shortages: Iterable[Shortage]) -> dict[tuple[object, ...], Shortage]:
    """Merge a workload's shortages, since each of a run's ranks may have reported one: keep the
    largest GPU count and the last time.
    """
    worst: dict[tuple[object, ...], Shortage] = {}
    for shortage in shortages:
        key = shortage.user, shortage.workload, shortage.gpu_type
        worst_shortage = worst.get(key, shortage)
        gpus, at = max(worst_shortage.gpus, shortage.gpus), max(worst_shortage.at, shortage.at)
        worst[key] = replace(shortage, gpus=gpus, at=at)
    return worst


def shortages(connection: Connection) -> tuple[Shortage, ...]:
    """All shortages."""
    rows = connection.execute(
        'SELECT to_json(s) FROM shortages s ORDER BY "user", workload, gpu_type'
    )
    return tuple(decode(Shortage, row) for (row,) in rows)


def _replace(key: str, columns: Iterable[str]) -> str:
    assignments = ", ".join(f"{name} = excluded.{name}" for name in columns)
    return f"ON CONFLICT ({key}) DO UPDATE SET {assignments}"


@dataclass(frozen=True, slots=True)
class ReportedSpeed:
    """A job's reported speed: ``per_gpu`` in samples per second, ``nodes`` with its GPUs per node.

    ``gpu`` is the index of the job's only GPU, None if it had several or the index is unknown.
    """

    at: float
    job: str
    workload: str
    batch: float
    nodes: dict[str, int]
    per_gpu: float
    gpu: int | None = None


def reported_speeds(connection: Connection, since: float) -> list[ReportedSpeed]:
    """Return a speed for each report that only one run of its user can have made.

    A report names its job, a node, a user and how many GPUs the job has; the run is the placement
    that had them at that time. Earlier releases stored no job: if two runs may have made a report,
    it is left out.
    """
    rows = connection.execute(_SPEEDS, {"since": since})
    return [ReportedSpeed(*row) for row in rows]


_SPEEDS = """
SELECT DISTINCT ON (at, job, workload, batch) at, job, workload, batch, nodes, per_gpu, gpu FROM (
    SELECT t.at, p.job, t.workload, t.batch, p.nodes, t.per_gpu, t.gpu,
        count(*) OVER (
            PARTITION BY
                t.at, t.workload, t.node, t.gpus, t.nodes, t."user", t.batch, t.per_gpu, t.job
        ) AS runs
    FROM throughput t
    JOIN placements p ON p.nodes ? t.node AND p.started <= t.at
        AND (p.ended IS NULL OR p.ended >= t.at)
        AND (SELECT sum(value::int) FROM jsonb_each_text(p.nodes)) = t.gpus
        AND t.job IN ('', p.job)
    JOIN jobs j ON j.id = p.job AND j.submit = p.submit AND j.user_name = t."user"
    WHERE t.at >= %(since)s
) matched WHERE runs = 1
ORDER BY at, job, workload, batch, per_gpu
"""
