"""`python -m bench.report [--jobs 100000]`: what `hopsctl report` waits for."""

from __future__ import annotations

import argparse
import random
import resource
import time

from hopsd.model.allocation import Allocation
from hopsd.model.history import JobRecord
from hopsd.model.ids import GpuType, JobId, UserName, WorkloadName
from hopsd.model.journal import HOUR, GpuUse
from hopsd.model.reading import SlurmState
from hopsd.slurm.accounting.jobs import parse_logged
from hopsd.store.embedded import EmbeddedPostgres
from hopsd.store.history import DAY_SECONDS
from hopsd.store.migrate import migrate
from hopsd.store.postgres import PostgresStore

DAYS = 30
AT_ONCE = 5000


def records(count: int, now: float) -> list[tuple[JobRecord, JobRecord]]:
    """Jobs of 200 users in 20 accounts, each with a run, and as it ended."""
    draw = random.Random(0)
    found = []
    for number in range(count):
        end = now - draw.random() * DAYS * DAY_SECONDS
        run, wait = draw.lognormvariate(8.0, 1.4), draw.expovariate(1 / 3600.0)
        gpus = draw.choice((1, 1, 1, 2, 2, 4, 8, 16))
        user = draw.randrange(200)
        start = end - run
        job = JobRecord(
            JobId(str(number)), UserName(f"user{user}"), "train", f"hops:reqs={gpus}",
            WorkloadName("w"), start - wait, start, SlurmState.RUNNING, wait_seconds=wait,
            allocation=Allocation.of({f"n{draw.randrange(200)}": gpus}), allocation_since=start,
            account=f"lab{user % 20}",
        )  # fmt: skip
        over = JobRecord(
            job.id, job.user, job.name, job.comment, job.workload, job.submit, end,
            SlurmState.COMPLETED, wait_seconds=wait, run_seconds=run, age_seconds=run * 1.1,
            attained_gpu_seconds=run * gpus, restarts=draw.randrange(3), end=end,
            account=job.account,
        )  # fmt: skip
        found.append((job, over))
    return found


def fill(store: PostgresStore, count: int, now: float) -> None:
    jobs = records(count, now)
    for first in range(0, count, AT_ONCE):
        for state in (0, 1):
            store.save_jobs(pair[state] for pair in jobs[first : first + AT_ONCE])
    hours = range(int((now - DAYS * DAY_SECONDS) // HOUR), int(now // HOUR))
    types = [GpuType(name) for name in ("a100", "h100", "v100", "rtx3090")]
    store.add_gpu_use(GpuUse(h * HOUR, t, 1e5, 1e5, 1e4, 1e4, 1e3) for h in hours for t in types)


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
        with PostgresStore(server.dsn()) as store:
            fill(store, count, now)
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
