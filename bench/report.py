"""`python -m bench.report [--jobs 100000]`: cost of `hopsctl report` and `shadow report`.

The shadow's diary covers half of the jobs.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from hopsd.model.bounds import MAX_DIARY_ROWS
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
INSERT INTO diary (job, submit, gpus, gpu_type, time_limit_seconds, planned, nodes)
SELECT id, submit, 1, '', 7200.0, submit + 60.0, '{"n0": 1}' FROM jobs WHERE mod(id::int, 2) = 0;
INSERT INTO gpu_use SELECT hour * 3600.0, kind, 1e5, 1e5, 1e4, 1e4, 1e3
FROM generate_series(%(first)s, %(last)s) hour, (VALUES ('a'), ('b'), ('c'), ('d')) k (kind);
ANALYZE;
"""

CREATE_TABLE = """
CREATE TEMPORARY TABLE drawn AS SELECT n, %(now)s - random() * %(span)s AS t,
    exp(8 + random() * 3) AS run, random() * 7200 AS wait, (1 << mod(n, 5)) AS gpus
FROM generate_series(1, %(count)s) n
"""


def fill(dsn: str, count: int, now: float) -> None:
    """Insert jobs of 200 users in 20 accounts, of 1 to 16 GPUs, each with two runs."""
    span = DAYS * DAY_SECONDS
    numbers = {"now": now, "span": span, "count": count,
               "first": int((now - span) // HOUR), "last": int(now // HOUR)}  # fmt: skip
    with psycopg.connect(dsn, options="-c search_path=hops") as connection:
        connection.execute(CREATE_TABLE, numbers)
        for statement in FILL.split(";\n"):
            connection.execute(statement, numbers if "%(" in statement else None)


def sacct_lines(count: int) -> list[str]:
    line = (
        "{}|u{}|lab|2026-01-31T12:00:00|2026-01-31T12:00:00|2026-01-31T13:00:00"
        "|2026-01-31T14:00:00|cpu=8,gres/gpu=2|cpu=8,gres/gpu=2|120|COMPLETED|"
    )
    return [line.format(number, number % 200) for number in range(count)]


def server_seconds(dsn: str) -> float:
    """CPU seconds of PostgreSQL, with its ended processes, once other connections have closed."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        other_pids = (
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE backend_type LIKE '%client%' AND pid <> pg_backend_pid()"
        )
        while connection.execute(other_pids).fetchone() != (0,):
            time.sleep(0.05)
        time.sleep(0.3)  # until the postmaster reaps them
        (text,) = connection.execute("SELECT pg_read_file('postmaster.pid')").fetchone() or ("",)
    fields = Path(f"/proc/{int(text.split()[0])}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")  # proc(5)


@contextmanager
def print_costs(dsn: str, title: str) -> Iterator[PostgresStore]:
    """Print the wall time of the ``with`` block, and the CPU time of client and server."""
    server_began, client_began = server_seconds(dsn), time.process_time()
    with PostgresStore(dsn) as store:
        began = time.perf_counter()
        yield store
        seconds = time.perf_counter() - began
    client_began = time.process_time() - client_began
    server = server_seconds(dsn) - server_began
    print(f"{title}: {seconds:.2f} s, of the processor {server:.2f} s of PostgreSQL's"
          f" and {client_began:.2f} s of ours")  # fmt: skip


def memory_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=100_000)
    count, now = parser.parse_args().jobs, time.time()
    with EmbeddedPostgres() as server:
        dsn = server.dsn()
        migrate(dsn)
        fill(dsn, count, now)
        for days in (DAYS, 1):
            since = now - days * DAY_SECONDS
            with print_costs(dsn, f"report of {days} days") as store:
                answer = store.figures(since, now, 30.0, None)
                store.gpu_use(since, now, DAY_SECONDS if days > 3 else HOUR)
            print(f"  {sum(row['jobs'] for row in answer['waits'] if row['by'] == 'all'):,} jobs")
        before, pages, size = memory_mib(), 0, 0
        with print_costs(dsn, f"a shadow's diary of {count:,} jobs") as store:
            place = None
            while page := store.diary(0.0, now + HOUR, MAX_DIARY_ROWS, place):
                pages, size = pages + 1, max(size, len(json.dumps(page)))
                place = page[0]["submit"], page[0]["id"]
        print(f"  {pages} pages of at most {size / 2**20:.1f} MiB,"
              f" {memory_mib() - before:.0f} MiB more memory")  # fmt: skip
    lines = sacct_lines(count)
    memory_before, cpu_before = memory_mib(), time.process_time()
    logged_jobs = parse_logged(lines)
    seconds = time.process_time() - cpu_before
    print(f"{len(logged_jobs):,} jobs of sacct read in {seconds:.2f} s of the"
          f" processor, {memory_mib() - memory_before:.0f} MiB more memory")  # fmt: skip


if __name__ == "__main__":
    main()
