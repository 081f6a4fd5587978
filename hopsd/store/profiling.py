"""Table ``profile_runs``: the profile runs of workloads on each GPU type."""

from __future__ import annotations

from collections.abc import Iterable

from hopsd.model.history import ProfileRun
from hopsd.store.codec import decode, encode
from hopsd.store.connection import Connection, insert


def save(connection: Connection, runs: Iterable[ProfileRun]) -> None:
    """Insert or replace runs; a run is identified by its job and begin."""
    rows = [encode(run) for run in {(run.job, run.begin): run for run in runs}.values()]
    for row in rows:
        row["ended"] = row.pop("end")  # "end" is a reserved word in SQL
    insert(
        connection,
        "profile_runs",
        rows,
        on_conflict="ON CONFLICT (job, begin) DO UPDATE SET run = excluded.run,"
        " workload = excluded.workload, gpu_type = excluded.gpu_type, node = excluded.node,"
        " ended = excluded.ended, closed = excluded.closed, failure = excluded.failure",
    )


def runs(connection: Connection, since: float) -> tuple[ProfileRun, ...]:
    """Open runs, and those that began at or after ``since``, ordered by begin."""
    rows = connection.execute(
        "SELECT to_json(r) FROM profile_runs r WHERE NOT closed OR begin >= %s"
        ' ORDER BY begin, job COLLATE "C"',
        [since],
    )
    return tuple(decode(ProfileRun, {**row, "end": row["ended"]}) for (row,) in rows)
