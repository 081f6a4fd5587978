"""Tables ``events``, ``control``, ``mail_kinds`` and ``wishes``, and the deletion of old rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hopsd.errors import ConfigError
from hopsd.model.ids import JobId, UserName
from hopsd.model.journal import Control, Event, ReleaseRequest
from hopsd.store import throughput
from hopsd.store.codec import clean
from hopsd.store.connection import Connection


def add_event(
    connection: Connection, kind: str, text: str, job: JobId | None, time: float | None
) -> None:
    connection.execute(
        "INSERT INTO events (at, kind, job, text)"
        " VALUES (coalesce(%s, extract(epoch FROM clock_timestamp())::float8), %s, %s, %s)",
        [time, clean(kind), None if job is None else clean(job), clean(text)],
    )


def events(connection: Connection, job: JobId | None, limit: int) -> tuple[Event, ...]:
    rows = connection.execute(
        "SELECT at, kind, text, job FROM events WHERE %(job)s::text IS NULL OR job = %(job)s"
        " ORDER BY id DESC LIMIT %(limit)s",
        {"job": job, "limit": limit},
    )
    return tuple(Event(*row) for row in rows)


def control(connection: Connection) -> Control:
    row = connection.execute("SELECT paused, by_whom, since FROM control").fetchone()
    return Control() if row is None else Control(*row)


def claim_cluster(connection: Connection, name: str) -> None:
    row = connection.execute("SELECT name FROM cluster").fetchone()
    if row is None:
        connection.execute(
            "INSERT INTO cluster (name) VALUES (%s) ON CONFLICT DO NOTHING", [clean(name)]
        )
        row = connection.execute("SELECT name FROM cluster").fetchone()
    if row is not None and row[0] != clean(name):
        raise ConfigError(
            f"database.dsn: this database is cluster {row[0]}'s, and this Slurm is cluster {name};"
            " give each cluster a database of its own"
        )


def mail_kinds(connection: Connection, user: UserName) -> tuple[str, ...] | None:
    row = connection.execute(
        "SELECT kinds FROM mail_kinds WHERE user_name = %s", [clean(user)]
    ).fetchone()
    return None if row is None else tuple(row[0])


def save_mail_kinds(connection: Connection, user: UserName, kinds: Sequence[str] | None) -> None:
    if kinds is None:
        connection.execute("DELETE FROM mail_kinds WHERE user_name = %s", [clean(user)])
        return
    connection.execute(
        "INSERT INTO mail_kinds (user_name, kinds) VALUES (%s, %s)"
        " ON CONFLICT (user_name) DO UPDATE SET kinds = excluded.kinds",
        [clean(user), json.dumps(list(kinds))],
    )


def set_paused(connection: Connection, is_paused: bool, operator: str, time: float) -> None:
    connection.execute(
        "INSERT INTO control (paused, by_whom, since) VALUES (%s, %s, %s) ON CONFLICT (singleton)"
        " DO UPDATE SET paused = excluded.paused, by_whom = excluded.by_whom,"
        " since = excluded.since",
        [is_paused, clean(operator), time],
    )


def predictions(connection: Connection) -> dict[str, Any] | None:
    row = connection.execute("SELECT state FROM predictions").fetchone()
    return None if row is None else dict(row[0])


def save_predictions(connection: Connection, state: Mapping[str, Any]) -> None:
    connection.execute(
        "INSERT INTO predictions (state) VALUES (%s) ON CONFLICT (singleton)"
        " DO UPDATE SET state = excluded.state",
        [json.dumps(state)],
    )


def add_release_request(
    connection: Connection, jobs: Sequence[JobId], uid: int, time: float
) -> None:
    connection.execute(
        "INSERT INTO wishes (at, uid, jobs) VALUES (%s, %s, %s)",
        [time, uid, [clean(j) for j in jobs]],
    )


def release_requests(connection: Connection) -> tuple[ReleaseRequest, ...]:
    rows = connection.execute("SELECT id, at, uid, jobs FROM wishes ORDER BY id")
    return tuple(ReleaseRequest(number, time, uid, tuple(jobs)) for number, time, uid, jobs in rows)


def end_release_requests(connection: Connection, requests: Iterable[ReleaseRequest]) -> None:
    connection.execute(
        "DELETE FROM wishes WHERE id = ANY(%s)", [[request.id for request in requests]]
    )


def prune(connection: Connection, before: float) -> dict[str, int]:
    """Delete old rows except open ones and the newest finished plan; returns counts by table."""
    deleted_rows = {
        table: connection.execute(statement, {"before": before}).rowcount
        for table, statement in _PRUNE.items()
    }
    return deleted_rows | throughput.prune(connection, before)


_PRUNE = {
    "jobs": b"DELETE FROM jobs WHERE ended < %(before)s",
    "diary": b"DELETE FROM diary d WHERE %(before)s > 0 AND NOT EXISTS"
    b" (SELECT FROM jobs j WHERE j.id = d.job AND j.submit = d.submit)",
    "placements": b"DELETE FROM placements WHERE ended < %(before)s",
    "rounds": b"DELETE FROM rounds r WHERE ends < %(before)s AND NOT EXISTS (SELECT FROM plans p"
    b" WHERE p.round = r.started AND (p.finished IS NULL OR p.id ="
    b" (SELECT max(id) FROM plans WHERE finished IS NOT NULL)))",
    "reasons": b"DELETE FROM reasons WHERE until < %(before)s",
    "shortages": b"DELETE FROM shortages WHERE at < %(before)s",
    "theory": b"DELETE FROM theory WHERE at < %(before)s",
    "profile_runs": b"DELETE FROM profile_runs WHERE closed AND begin < %(before)s",
    "programs": b"DELETE FROM programs WHERE at < %(before)s",
    "gpu_use": b"DELETE FROM gpu_use WHERE hour < %(before)s",
    "events": b"DELETE FROM events WHERE at < %(before)s",
}
