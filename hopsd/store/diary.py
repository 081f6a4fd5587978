"""Table ``diary``: what a shadow saw of each job, and where hops would have started it first."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Any

from hopsd.model.journal import DiaryEntry
from hopsd.store.codec import clean, encode
from hopsd.store.connection import Connection, insert

JobKey = tuple[float, str]
"""A job's submit time and id, by which jobs are sorted."""


def save(connection: Connection, entries: Iterable[DiaryEntry]) -> None:
    """Insert entries; an existing job only gets its first plan."""
    insert(
        connection,
        "diary",
        [encode(entry) for entry in {(e.job, e.submit): e for e in entries}.values()],
        on_conflict="ON CONFLICT (job, submit) DO UPDATE"
        " SET planned = excluded.planned, nodes = excluded.nodes WHERE diary.planned IS NULL",
    )


def jobs(
    connection: Connection, since: float, until: float, limit: int, cursor: JobKey | None = None
) -> list[dict[str, Any]]:
    """Return the period's newest jobs before ``cursor``, with their runs, oldest first."""
    submit, job = cursor or (inf, "")
    rows = connection.execute(
        _JOBS, {"since": since, "until": until, "most": limit, "submit": submit, "job": clean(job)}
    )
    return [row[0] for row in rows][::-1]


_JOBS = """
SELECT jsonb_build_object('id', j.id, 'user', j.user_name, 'account', j.account,
    'submit', j.submit, 'wait', j.wait_seconds, 'gpus', d.gpus, 'gpu_type', d.gpu_type,
    'limit', d.time_limit_seconds, 'planned', d.planned, 'nodes', d.nodes,
    'runs', coalesce((
        SELECT jsonb_agg(jsonb_build_array(p.started, p.ended, (
            SELECT sum(value::int) FROM jsonb_each_text(p.nodes))) ORDER BY p.started)
        FROM placements p WHERE p.job = j.id AND p.submit = j.submit), '[]'))
FROM diary d JOIN jobs j ON j.id = d.job AND j.submit = d.submit
WHERE j.submit < %(until)s AND (j.ended IS NULL OR j.ended >= %(since)s)
    AND (j.submit, j.id) < (%(submit)s, %(job)s)
ORDER BY j.submit DESC, j.id DESC LIMIT %(most)s
"""
