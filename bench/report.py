"""`python -m bench.report [--jobs 100000]`: what `hopsctl report` waits for."""

from __future__ import annotations

import argparse
import resource
import time

import psycopg

from hopsd.model.journal import HOUR
from hopsd.slurm.accounting.jobs import parse_logged
from hopsd.store.embedded import EmbeddedPostgres
from hopsd.store.history import DAY_SECONDS
from hopsd.store.migrate import migrate
from hopsd.store.postgres import PostgresStore

DAYS = 30


FILL = """
INSERT INTO jobs (id, submit, user_name, account, name, comment, workload, seen, state,
    wait_seconds, run_seconds, run_seconds_by_type, attained_gpu_seconds, restarts, samples_done,
    restart_seconds, allocation, profiling, age_seconds, ended, released, app_seconds,
    app_gpu_seconds, program)
SELECT n::text, t - run - wait, 'user' || mod(n, 200), 'lab' || mod(n, 20), 'train',
    'hops:reqs=1', 'w', t, 'COMPLETED', wait, run, '{}', run * gpus, 1, 0, 0, '{}', false,
    run * 1.1, t, false, 0, 0, ''
FROM drawn;
INSERT INTO placements (job, submit, started, ended, nodes, profiling)
SELECT n::text, t - run - wait, t - run * part, t - run * (part - 0.5),
    jsonb_build_object('n' || mod(n, 200), gpus), part = 1 AND mod(n, 10) = 0
FROM drawn, (VALUES (1.0), (0.5)) AS parts (part);
INSERT INTO gpu_use SELECT hour * 3600.0, kind, 1e5, 1e5, 1e4, 1e4, 1e3
FROM generate_series(%(first)s, %(last)s) hour, (VALUES ('a'), ('b'), ('c'), ('d')) k (kind);
ANALYZE;
"""

DRAWN = """
CREATE TEMPORARY TABLE drawn AS SELECT n, %(now)s - random() * %(span)s AS t,
    exp(8 + random() * 3) AS run, random() * 7200 AS wait, (1 << mod(n, 5)) AS gpus
FROM generate_series(1, %(count)s) n
"""


def fill(dsn: str, count: int, now: float) -> None:
    """Jobs of 200 users in 20 accounts, of 1 to 16 GPUs, each with two runs."""
    span = DAYS * DAY_SECONDS
    numbers = {"now": now, "span": span, "count": count,
               "first": int((now - span) // HOUR), "last": int(now // HOUR)}  # fmt: skip
    with psycopg.connect(dsn, options="-c search_path=hops") as connection:
        connection.execute(DRAWN, numbers)
        for statement in FILL.split(";\n"):
            connection.execute(statement, numbers if "%(" in statement else None)


def sacct_lines(count: int) -> list[str]:
    line = (
        "{}|u{}|lab|2026-01-31T12:00:00|2026-01-31T12:00:00|2026-01-31T13:00:00"
        "|2026-01-31T14:00:00|cpu=8,gres/gpu=2|cpu=8,gres/gpu=2|120|COMPLETED|"
    )
    return [line.format(number, number % 200) for number in range(count)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=100_000)
    count, now = parser.parse_args().jobs, time.time()
    with EmbeddedPostgres() as server:
        migrate(server.dsn())
        fill(server.dsn(), count, now)
        with PostgresStore(server.dsn()) as store:
            for days in (DAYS, 1):
                began = time.perf_counter()
                since = now - days * DAY_SECONDS
                told = store.figures(since, now, 30.0, None)
                use = store.gpu_use(since, now, DAY_SECONDS if days > 3 else HOUR)
                seconds = time.perf_counter() - began
                jobs = sum(row["jobs"] for row in told["waits"] if row["by"] == "all")
                print(f"{days} days, {jobs:,} jobs, {len(use)} rows of use: {seconds:.2f} s")
    lines = sacct_lines(count)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    found = parse_logged(lines)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(f"{len(found):,} jobs of sacct read in {time.process_time() - began:.2f} s of the"
          f" processor, {max(0, grown) / 1024:.0f} MiB more memory")  # fmt: skip


if __name__ == "__main__":
    main()
