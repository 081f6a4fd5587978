"""Figures of a period: table ``gpu_use``, and sums over jobs, placements and profile runs.

PostgreSQL computes the sums, so that a hundred thousand jobs never leave it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hopsd.model.ids import UserName
from hopsd.model.journal import GpuUse, QueuePeriod
from hopsd.store.codec import clean, decode, encode
from hopsd.store.connection import Connection, insert

RATIOS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Upper bounds of the latency ratio ranges; the last range is open."""


SLOWDOWN_SECONDS = 10.0
"""Minimum run time in the bounded slowdown, (wait + run) / run (Feitelson et al., 1997): without it
a job of one second would outweigh all others."""


def add_gpu_use(connection: Connection, use: Iterable[GpuUse]) -> None:
    """Add ``use`` to the stored figures of the same hours and types."""
    insert(
        connection,
        "gpu_use",
        [encode(row) for row in use],
        on_conflict="ON CONFLICT (hour, gpu_type) DO UPDATE"
        " SET hops = gpu_use.hops + excluded.hops, plain = gpu_use.plain + excluded.plain,"
        " fragmented = gpu_use.fragmented + excluded.fragmented,"
        " idle = gpu_use.idle + excluded.idle, down = gpu_use.down + excluded.down,"
        " rack_fragmented = gpu_use.rack_fragmented + excluded.rack_fragmented",
    )


def gpu_use(
    connection: Connection, since: float, until: float, seconds: float
) -> tuple[GpuUse, ...]:
    """Sum per ``seconds``, a multiple of an hour; ``hour`` is the start of each period."""
    rows = connection.execute(
        "SELECT to_json(g) FROM (SELECT floor(hour / %(seconds)s) * %(seconds)s AS hour, gpu_type,"
        " sum(hops) AS hops, sum(plain) AS plain, sum(fragmented) AS fragmented,"
        " sum(idle) AS idle, sum(down) AS down, sum(rack_fragmented) AS rack_fragmented"
        " FROM gpu_use"
        " WHERE hour > %(since)s - 3600.0 AND hour < %(until)s GROUP BY 1, 2) g"
        " ORDER BY hour, gpu_type",
        {"since": since, "until": until, "seconds": seconds},
    )
    return tuple(decode(GpuUse, row[0]) for row in rows)


def queue_periods(
    connection: Connection, since: float, until: float, seconds: float, user: UserName | None
) -> tuple[QueuePeriod, ...]:
    """Return periods of ``seconds`` from ``since`` on; the last one begins before ``until``."""
    parameters = {
        "since": since,
        "until": until,
        "seconds": seconds,
        "user": None if user is None else clean(user),
    }
    rows = connection.execute(_PERIODS, parameters)
    return tuple(QueuePeriod(*row) for row in rows)


_PERIODS = """
WITH periods AS (
    SELECT %(since)s::float8 + number * %(seconds)s::float8 AS start
    FROM generate_series(0, ceil((%(until)s - %(since)s) / %(seconds)s)::bigint - 1) AS number
), queue AS (
    SELECT p.start,
        sum(least(coalesce(r.until, %(until)s), p.start + %(seconds)s) - greatest(r.since, p.start))
            AS waited
    FROM periods p JOIN reasons r
        ON r.since < least(p.start + %(seconds)s, %(until)s)
        AND (r.until IS NULL OR r.until > p.start)
    WHERE %(user)s::text IS NULL
        OR EXISTS (SELECT FROM jobs j WHERE j.id = r.job AND j.user_name = %(user)s)
    GROUP BY 1
), ends AS (
    SELECT floor((ended - %(since)s) / %(seconds)s) AS number,
        count(*) AS jobs, avg(wait_seconds) AS wait_seconds
    FROM jobs WHERE ended >= %(since)s AND ended < %(until)s
        AND (%(user)s::text IS NULL OR user_name = %(user)s)
    GROUP BY 1
)
SELECT p.start,
    coalesce(q.waited, 0) / least(%(seconds)s, %(until)s - p.start),
    coalesce(e.jobs, 0), e.wait_seconds
FROM periods p LEFT JOIN queue q USING (start)
    LEFT JOIN ends e ON e.number = round((p.start - %(since)s) / %(seconds)s)
ORDER BY 1
"""


def figures(
    connection: Connection,
    since: float,
    until: float,
    restart: float,
    user: UserName | None,
    *,
    shadow: bool = False,
) -> dict[str, Any]:
    """Compute sums over a period, of all jobs or one ``user``'s. Jobs that Slurm scheduled while
    hops was a shadow are included with ``shadow``, and otherwise only counted, as ``slurm_jobs``.

    ``restart`` is the assumed duration, in seconds, of a restart of jobs without a measured one.
    """
    parameters = {
        "since": since,
        "until": until,
        "restart": restart,
        "user": None if user is None else clean(user),
        "ratios": list(RATIOS),
        "least": SLOWDOWN_SECONDS,
        "shadow": shadow,
    }
    gpu_time = connection.execute(_SPENT_QUERY, parameters).fetchone()
    waits, ratios, slurms = connection.execute(_WAITS, parameters).fetchone() or (None, None, 0)
    first = connection.execute(_FIRST).fetchone()
    return {
        "first": first[0] if first else None,
        "spent": gpu_time[0] if gpu_time else {},
        "waits": waits or [],
        "slurm_jobs": slurms,
        "ratios": [(ratios or {}).get(str(place), 0) for place in range(len(RATIOS) + 1)],
    }


# Only jobs that hops scheduled; those in the diary were scheduled by Slurm.
_FIRST = """
SELECT min(submit) FROM jobs j WHERE comment <> ''
    AND NOT EXISTS (SELECT FROM diary d WHERE d.job = j.id AND d.submit = j.submit)
"""

# The part of each placement within the period. Every run but a job's first is a restart.
# MATERIALIZED makes each subquery run once per placement, not once per sum.
_SPENT_QUERY = """
WITH spent AS MATERIALIZED (
    SELECT p.profiling, p.started >= %(since)s AS began,
        least(coalesce(p.ended, %(until)s), %(until)s) - greatest(p.started, %(since)s) AS seconds,
        (SELECT coalesce(sum(value::float8), 0.0) FROM jsonb_each_text(p.nodes)) AS gpus,
        coalesce(nullif(j.restart_seconds, 0.0), %(restart)s) AS cost,
        CASE WHEN p.profiling OR p.started < %(since)s THEN false ELSE EXISTS (
            SELECT FROM placements o WHERE o.job = p.job AND o.submit = p.submit
            AND o.started < p.started AND NOT o.profiling) END AS restart
    FROM placements p LEFT JOIN jobs j ON j.id = p.job AND j.submit = p.submit
    WHERE p.started < %(until)s AND (p.ended IS NULL OR p.ended > %(since)s)
        AND (%(shadow)s OR NOT EXISTS (
            SELECT FROM diary d WHERE d.job = p.job AND d.submit = p.submit))
        AND (%(user)s::text IS NULL OR j.user_name = %(user)s)
)
SELECT jsonb_build_object(
    'training', coalesce(sum(seconds * gpus) FILTER (WHERE NOT profiling), 0.0),
    'profiling', coalesce(sum(seconds * gpus) FILTER (WHERE profiling), 0.0),
    'profile_runs', count(*) FILTER (WHERE profiling AND began),
    'restarts', count(*) FILTER (WHERE restart),
    'restarting', coalesce(sum(least(seconds, cost) * gpus) FILTER (WHERE restart), 0.0))
FROM spent
"""

# Jobs imported from Slurm's accounting have no comment and unknown waits. Sizes are the
# powers of two at or above a job's mean number of GPUs. `hops` leaves out the jobs that a shadow
# saw; the other groups include them only while hops is a shadow.
_WAITS = """
WITH every AS MATERIALIZED (
    SELECT user_name, account, wait_seconds AS wait, run_seconds AS run,
        attained_gpu_seconds AS gpu,
        wait_seconds / coalesce(nullif(age_seconds, 0.0), run_seconds) AS ratio,
        (2.0 ^ ceil(ln(greatest(1, round(attained_gpu_seconds / run_seconds))) / ln(2.0) - 1e-9)
            )::int AS size,
        NOT EXISTS (SELECT FROM diary d WHERE d.job = jobs.id AND d.submit = jobs.submit) AS ours
    FROM jobs
    WHERE ended >= %(since)s AND ended < %(until)s AND run_seconds > 0 AND comment <> ''
        AND (%(user)s::text IS NULL OR user_name = %(user)s)
), ended AS (
    SELECT * FROM every WHERE ours OR %(shadow)s
), waits AS (
    SELECT CASE WHEN grouping(ours) = 0 THEN 'hops' WHEN grouping(size) = 0 THEN 'size'
            WHEN grouping(user_name) = 0 THEN 'user' WHEN grouping(account) = 0 THEN 'account'
            ELSE 'all' END AS by,
        coalesce(size::text, user_name, account, '') AS name,
        count(*) AS jobs, sum(gpu) AS gpu_seconds, avg(wait) AS mean_wait,
        percentile_cont(0.5) WITHIN GROUP (ORDER BY wait) AS median_wait,
        percentile_cont(0.9) WITHIN GROUP (ORDER BY wait) AS p90_wait,
        avg(ratio) AS mean_ratio,
        percentile_cont(0.9) WITHIN GROUP (ORDER BY ratio) AS p90_ratio,
        max(ratio) AS max_ratio,
        avg(greatest(1.0, (wait + run) / greatest(run, %(least)s))) AS mean_slowdown,
        size, ours
    FROM ended
    GROUP BY GROUPING SETS ((), (ours), (size), (user_name), (account))
), ratios AS (
    SELECT width_bucket(ratio, %(ratios)s::float8[]) AS place, count(*) AS jobs
    FROM ended GROUP BY 1
)
SELECT (SELECT jsonb_agg(to_jsonb(w) - 'size' - 'ours'
            ORDER BY size, gpu_seconds DESC, name COLLATE "C")
        FROM waits w WHERE jobs > 0 AND ours IS NOT FALSE),
    (SELECT jsonb_object_agg(place, jobs) FROM ratios),
    (SELECT count(*) FROM every WHERE NOT ours)
"""
