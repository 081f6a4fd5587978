"""Ended jobs: runs that predict run times of present jobs, and how jobs ended on which nodes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hopsd.model.history import JobRecord
from hopsd.model.knowledge import PastRun
from hopsd.model.reading import SlurmState
from hopsd.store.connection import Connection

MAX_SIMILAR, MAX_OF_USER, MAX_OF_ACCOUNT = 16, 32, 128
"""Maximum runs, newest first: per user and workload or job name, per user, and per account."""

ENDS = frozenset(
    {SlurmState.COMPLETED, SlurmState.FAILED, SlurmState.CANCELLED, SlurmState.TIMEOUT}
)
"""States of a finished run: failed and cancelled ones count, runs lost with their node do not."""

DONE_SHARE = 0.99
"""A job that reports at least this share of its planned samples ended because it was done, also if
that was in the grace of hops' own signal: the last report may be an iteration old."""


def is_done(job: JobRecord) -> bool:
    """Whether the job trained on all samples that its loops planned."""
    planned = job.samples_planned
    return planned is not None and job.samples_done >= DONE_SHARE * planned


def past_run(job: JobRecord) -> PastRun | None:
    """Make a past run of a job; None if it has not ended, or never ran."""
    if job.end is None or job.state not in ENDS or job.run_seconds <= 0.0:
        return None
    return PastRun(
        job.user,
        job.account,
        job.name,
        job.workload,
        job.run_seconds,
        job.attained_gpu_seconds,
        job.samples_done,
        job.end,
    )


def select_runs(
    ended_jobs: Iterable[JobRecord], present: Iterable[JobRecord]
) -> tuple[PastRun, ...]:
    """Select the newest runs of each user, workload, job name and account of ``present`` jobs."""
    remaining: dict[tuple[str, ...], int] = {}
    for job in present:
        remaining.update(_kinds(job))
    runs = []
    for job in sorted(
        ended_jobs, key=lambda job: (job.end or 0.0, job.id, job.submit), reverse=True
    ):
        run = past_run(job)
        kinds = [kind for kind in _kinds(job) if remaining.get(kind)]
        if run is not None and kinds:
            for kind in kinds:
                remaining[kind] -= 1
            runs.append(run)
    return tuple(reversed(runs))


def _kinds(job: JobRecord) -> dict[tuple[str, ...], int]:
    """The keys by which the job resembles others, and the maximum runs per key."""
    kinds: dict[tuple[str, ...], int] = {
        ("workload", job.user, job.workload): MAX_SIMILAR,
        ("name", job.user, job.name): MAX_SIMILAR,
        ("user", job.user): MAX_OF_USER,
    }
    if job.account:
        kinds["account", job.account] = MAX_OF_ACCOUNT
    return kinds


LAUNCH_FAILED = "launch_failed"
"""The kind of event that says that a run could not be launched."""


@dataclass(frozen=True, slots=True)
class EndedRun:
    """A run that ended on ``nodes``; ``state`` is the job's in Slurm, or LAUNCH_FAILED."""

    at: float
    job: str
    workload: str
    nodes: dict[str, int]
    state: str


@dataclass(frozen=True, slots=True)
class StoredStay:
    """A job's stay on ``nodes`` from ``start`` to ``end``, which is None if it is still there."""

    job: str
    nodes: dict[str, int]
    start: float
    end: float | None


def stays(connection: Connection, since: float) -> list[StoredStay]:
    """The stays of jobs that did not end before ``since``."""
    rows = connection.execute(
        "SELECT job, nodes, started, ended FROM placements"
        " WHERE ended IS NULL OR ended >= %s ORDER BY started, job",
        [since],
    )
    return [StoredStay(*row) for row in rows]


def ended_runs(connection: Connection, since: float) -> list[EndedRun]:
    """The last placement of each ended job, without profile runs, and the runs that Slurm could not
    launch (events :data:`LAUNCH_FAILED`), after which the job goes on waiting.
    """
    rows = connection.execute(_ENDS, {"since": since}).fetchall()
    rows += connection.execute(_LAUNCHES, {"since": since, "kind": LAUNCH_FAILED}).fetchall()
    return [EndedRun(*row) for row in rows]


_ENDS = """
SELECT DISTINCT ON (j.id, j.submit) j.ended, j.id, j.workload, p.nodes, j.state
FROM jobs j JOIN placements p ON p.job = j.id AND p.submit = j.submit
WHERE j.ended >= %(since)s AND NOT p.profiling
ORDER BY j.id, j.submit, p.started DESC
"""

_LAUNCHES = """
SELECT DISTINCT ON (p.job, p.submit, p.started) e.at, j.id, j.workload, p.nodes, 'LAUNCH_FAILED'
FROM events e
JOIN LATERAL (
    SELECT * FROM placements WHERE job = e.job AND started <= e.at ORDER BY started DESC LIMIT 1
) p ON true
JOIN jobs j ON j.id = p.job AND j.submit = p.submit
WHERE e.kind = %(kind)s AND e.at >= %(since)s AND NOT p.profiling
ORDER BY p.job, p.submit, p.started, e.at
"""
