"""Tables ``jobs``, ``placements`` and ``programs``."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from operator import attrgetter
from types import MappingProxyType
from typing import Any

from psycopg import sql

from hopsd.model.history import JobRecord
from hopsd.model.ids import JobId, UserName, WorkloadName
from hopsd.model.journal import RecordedAllocation
from hopsd.model.knowledge import PastRun
from hopsd.store.codec import clean, decode, encode
from hopsd.store.connection import Connection, insert
from hopsd.store.past_runs import DONE_SHARE, MAX_OF_ACCOUNT, MAX_OF_USER, MAX_SIMILAR
from hopsd.store.placement import end_by, follow

# The fields' own names are reserved words in SQL.
_COLUMNS = {"user": "user_name", "end": "ended"}
_FIELDS = {column: name for name, column in _COLUMNS.items()}
_PLACEMENT_COLUMNS = {"start": "started", "end": "ended", "allocation": "nodes"}
_PLACEMENT_FIELDS = {column: name for name, column in _PLACEMENT_COLUMNS.items()}


def open_jobs(connection: Connection) -> dict[JobId, JobRecord]:
    rows = connection.execute("SELECT to_json(j) FROM jobs j WHERE ended IS NULL")
    return {job.id: job for job in map(_job, rows)}


def newest(connection: Connection, jobs: Collection[JobId]) -> dict[JobId, JobRecord]:
    rows = connection.execute(
        "SELECT DISTINCT ON (id) to_json(j) FROM jobs j WHERE id = ANY(%s)"
        " ORDER BY id, submit DESC",
        [list(jobs)],
    )
    return {job.id: job for job in map(_job, rows)}


def ended(connection: Connection, limit: int, user: UserName | None) -> tuple[JobRecord, ...]:
    rows = connection.execute(
        "SELECT to_json(j) FROM jobs j WHERE ended IS NOT NULL"
        " AND (%(user)s::text IS NULL OR user_name = %(user)s)"
        ' ORDER BY ended DESC, id COLLATE "C", submit LIMIT %(limit)s',
        {"user": None if user is None else clean(user), "limit": limit},
    )
    return tuple(map(_job, rows))


def raqlr(connection: Connection, since: float) -> float | None:
    row = connection.execute(
        "SELECT avg(wait_seconds / coalesce(age_seconds, run_seconds)) FROM jobs"
        " WHERE ended >= %s AND coalesce(age_seconds, run_seconds) > 0",
        [since],
    ).fetchone()
    return None if row is None else row[0]


_CHANGING_COLUMNS = (
    "seen",
    "wait_seconds",
    "run_seconds",
    "run_seconds_by_type",
    "attained_gpu_seconds",
    "app_seconds",
    "app_gpu_seconds",
    "age_seconds",
    "samples_done",
    "restart_seconds",
)
"""Columns that change at every reading, even if nothing happened to the job."""

_rest_of = attrgetter(
    *(item.name for item in fields(JobRecord) if item.name not in _CHANGING_COLUMNS)
)


def save(
    connection: Connection,
    records: Iterable[JobRecord],
    stored_records: Mapping[JobId, JobRecord] = MappingProxyType({}),
) -> None:
    """Insert or replace records; ``stored_records`` are open ones stored with their placements.

    Most of 20,000 records differ only in ``_CHANGING_COLUMNS``; writing only these columns takes a
    third of the volume.
    """
    jobs = {record.id: record for record in records}
    updates = [
        record
        for record in jobs.values()
        if (old := stored_records.get(record.id)) is not None and _rest_of(old) == _rest_of(record)
    ]
    if _update(connection, updates):
        jobs = {job: jobs[job] for job in jobs.keys() - {record.id for record in updates}}
    _replace(connection, jobs)


def _update(connection: Connection, updates: Sequence[JobRecord]) -> bool:
    """Write the columns of ``_CHANGING_COLUMNS``; False if some records do not exist."""
    if not updates:
        return True
    names = ("id", "submit", *_CHANGING_COLUMNS)
    rows = [{name: encode(getattr(record, name)) for name in names} for record in updates]
    result = connection.execute(_MOVE, [json.dumps(rows, allow_nan=False)])
    return result.rowcount == len(updates)


_MOVE = sql.SQL(
    "UPDATE jobs j SET {} FROM json_populate_recordset(NULL::jobs, %s) given"
    " WHERE j.id = given.id AND j.submit = given.submit AND j.ended IS NULL"
).format(
    sql.SQL(", ").join(
        sql.SQL("{0} = given.{0}").format(sql.Identifier(name)) for name in _CHANGING_COLUMNS
    )
)


def _replace(connection: Connection, jobs: Mapping[JobId, JobRecord]) -> None:
    """Write whole records and their placements."""
    if not jobs:
        return
    rows = [_rename_keys(encode(record), _COLUMNS) for record in jobs.values()]
    connection.execute(  # close records of jobs that Slurm forgot before it reused their number
        "UPDATE jobs j SET ended = j.seen, state = 'OTHER', allocation = '{}', profiling = false"
        " FROM unnest(%s::text[], %s::float8[]) AS given (id, submit)"
        " WHERE j.id = given.id AND j.submit <> given.submit AND j.ended IS NULL",
        [[row["id"] for row in rows], [float(row["submit"]) for row in rows]],
    )
    assignments = ", ".join(f"{name} = excluded.{name}" for name in rows[0])
    insert(
        connection,
        "jobs",
        rows,
        on_conflict=f"ON CONFLICT (id, submit) DO UPDATE SET {assignments}",
    )
    last = _open_placements(connection, [row["id"] for row in rows])
    write_placements(
        connection,
        [row for record in jobs.values() for row in follow(last.get(record.id), record)],
    )


def write_placements(connection: Connection, placements: Sequence[RecordedAllocation]) -> None:
    insert(
        connection,
        "placements",
        [_rename_keys(encode(placement), _PLACEMENT_COLUMNS) for placement in placements],
        on_conflict="ON CONFLICT (job, submit, started) DO UPDATE SET"
        " nodes = excluded.nodes, ended = excluded.ended, profiling = excluded.profiling",
    )


def vacate(connection: Connection, job: JobId, time: float) -> None:
    """End the job's open placement if it began before ``time``."""
    last = _open_placements(connection, [job]).get(job)
    if last is not None and last.start < time:
        write_placements(connection, [end_by(last, time)])


def placements(connection: Connection, job: JobId | None) -> tuple[RecordedAllocation, ...]:
    rows = connection.execute(
        "SELECT to_json(p) FROM placements p WHERE %(job)s::text IS NULL OR job = %(job)s"
        ' ORDER BY started, job COLLATE "C", submit',
        {"job": job},
    )
    return tuple(_placement(row) for row in rows)


def _open_placements(connection: Connection, jobs: list[str]) -> dict[JobId, RecordedAllocation]:
    rows = connection.execute(
        "SELECT to_json(p) FROM placements p WHERE ended IS NULL AND job = ANY(%s)", [jobs]
    )
    return {placement.job: placement for placement in map(_placement, rows)}


def workloads_of(connection: Connection, user: UserName) -> frozenset[WorkloadName]:
    rows = connection.execute(
        "SELECT DISTINCT workload FROM jobs WHERE user_name = %s", [clean(user)]
    )
    return frozenset(WorkloadName(row[0]) for row in rows)


def programs(connection: Connection, scripts: Iterable[WorkloadName]) -> dict[WorkloadName, str]:
    rows = connection.execute(
        "SELECT script, program FROM programs WHERE script = ANY(%s)",
        [[clean(script) for script in scripts]],
    )
    return dict(rows.fetchall())


def save_program(connection: Connection, script: WorkloadName, program: str, time: float) -> None:
    row = {"script": clean(script), "program": clean(program), "at": time}
    assignments = "program = excluded.program, at = excluded.at"
    insert(
        connection,
        "programs",
        [row],
        on_conflict=f"ON CONFLICT (script) DO UPDATE SET {assignments}",
    )


def save_ended_by_signal(connection: Connection, jobs: Collection[JobId]) -> None:
    """Mark the newest job with each of these numbers."""
    connection.execute(
        "UPDATE jobs SET ended_by_signal = true FROM (SELECT id, max(submit) AS submit FROM jobs"
        " WHERE id = ANY(%s) GROUP BY id) AS newest"
        " WHERE jobs.id = newest.id AND jobs.submit = newest.submit",
        [[clean(job) for job in jobs]],
    )


def ended_by_signal(connection: Connection) -> frozenset[tuple[UserName, WorkloadName]]:
    """The users and workloads of jobs that hops' own signal ended before they were done."""
    rows = connection.execute(
        "SELECT DISTINCT user_name, workload FROM jobs WHERE ended_by_signal"
        " AND (samples_planned IS NULL OR samples_done < %s * samples_planned)",
        [DONE_SHARE],
    )
    return frozenset((UserName(user), WorkloadName(workload)) for user, workload in rows)


def failed_again(connection: Connection) -> frozenset[tuple[UserName, WorkloadName]]:
    """The users and workloads of jobs that failed soon after a restart."""
    rows = connection.execute("SELECT DISTINCT user_name, workload FROM jobs WHERE failed_again")
    return frozenset((UserName(user), WorkloadName(workload)) for user, workload in rows)


def past_runs(connection: Connection) -> tuple[PastRun, ...]:
    """Select the same runs as `hopsd.store.past_runs.select_runs`, by index."""
    limits = {"alike": MAX_SIMILAR, "user": MAX_OF_USER, "account": MAX_OF_ACCOUNT}
    rows = connection.execute(_PAST_RUNS, {**limits, "done": DONE_SHARE})
    return tuple(PastRun(*row) for row in rows)


_PAST_RUNS = """
WITH present AS (
    SELECT DISTINCT user_name, account, name, workload FROM jobs WHERE ended IS NULL
), done AS NOT MATERIALIZED (
    SELECT id, submit, user_name, account, name, workload, run_seconds, attained_gpu_seconds,
        samples_done, ended
    FROM jobs
    WHERE ended IS NOT NULL AND run_seconds > 0
        AND state IN ('COMPLETED', 'FAILED', 'CANCELLED', 'TIMEOUT')
        AND (NOT ended_by_signal OR samples_done >= %(done)s * samples_planned)
)
SELECT user_name, account, name, workload, run_seconds, attained_gpu_seconds, samples_done, ended
FROM (
    SELECT r.* FROM (SELECT DISTINCT user_name, workload FROM present) p, LATERAL (
        SELECT * FROM done d WHERE d.user_name = p.user_name AND d.workload = p.workload
        ORDER BY ended DESC, id COLLATE "C" DESC, submit DESC LIMIT %(alike)s) r
    UNION
    SELECT r.* FROM (SELECT DISTINCT user_name, name FROM present) p, LATERAL (
        SELECT * FROM done d WHERE d.user_name = p.user_name AND d.name = p.name
        ORDER BY ended DESC, id COLLATE "C" DESC, submit DESC LIMIT %(alike)s) r
    UNION
    SELECT r.* FROM (SELECT DISTINCT user_name FROM present) p, LATERAL (
        SELECT * FROM done d WHERE d.user_name = p.user_name
        ORDER BY ended DESC, id COLLATE "C" DESC, submit DESC LIMIT %(user)s) r
    UNION
    SELECT r.* FROM (SELECT DISTINCT account FROM present WHERE account <> '') p, LATERAL (
        SELECT * FROM done d WHERE d.account = p.account
        ORDER BY ended DESC, id COLLATE "C" DESC, submit DESC LIMIT %(account)s) r
) chosen
ORDER BY ended, id COLLATE "C", submit
"""


def _job(row: tuple[Any, ...]) -> JobRecord:
    return decode(JobRecord, _rename_keys(row[0], _FIELDS))


def _placement(row: tuple[Any, ...]) -> RecordedAllocation:
    return decode(RecordedAllocation, _rename_keys(row[0], _PLACEMENT_FIELDS))


def _rename_keys(row: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    return {names.get(name, name): value for name, value in row.items()}


class OpenJobs:
    """Cache of the open job records that the leading hopsd last read or wrote.

    While it leads nobody else writes them, so it need not read 20,000 rows per tick and can detect
    changes. The cache is valid for one leadership ``term``; with None (no leader) it is empty.
    """

    def __init__(self) -> None:
        self._term: object | None = None
        self._records: dict[JobId, JobRecord] = {}
        self._written_records: dict[JobId, JobRecord] = {}

    def get(self, term: object | None) -> Mapping[JobId, JobRecord] | None:
        """All records; None if they must be read."""
        return self._records if term is not None and term is self._term else None

    def written_records(self, term: object | None) -> Mapping[JobId, JobRecord]:
        """Records whose stored placements match them, since this hopsd wrote both."""
        return {} if self.get(term) is None else self._written_records

    def keep(self, term: object | None, records: Mapping[JobId, JobRecord]) -> None:
        """Cache records read in this term."""
        self._term, self._records, self._written_records = term, dict(records), {}

    def update(self, records: Iterable[JobRecord]) -> None:
        """Cache records just written."""
        if self._term is None:
            return
        for record in records:
            if record.end is None:
                self._records[record.id] = self._written_records[record.id] = record
            else:
                self._records.pop(record.id, None)
                self._written_records.pop(record.id, None)

    def mark_vacated(self, jobs: Iterable[JobId]) -> None:
        """Drop jobs whose placements may have ended; a record that still has them reopens them."""
        for job in jobs:
            self._written_records.pop(job, None)

    def forget(self) -> None:
        """Clear the cache after a failed write, or one that bypassed it."""
        self._term, self._records, self._written_records = None, {}, {}
