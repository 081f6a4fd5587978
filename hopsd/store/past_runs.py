"""Which ended jobs say how long the present ones will run, and how jobs ended where."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hopsd.model.history import JobRecord
from hopsd.model.knowledge import PastRun
from hopsd.model.reading import SlurmState
from hopsd.store.connection import Connection

MOST_ALIKE, MOST_OF_USER, MOST_OF_ACCOUNT = 16, 32, 128
"""The newest so many runs of a user's workload or job name, of a user and of an account."""

ENDS = frozenset(
    {SlurmState.COMPLETED, SlurmState.FAILED, SlurmState.CANCELLED, SlurmState.TIMEOUT}
)
"""A job that fails or is cancelled is over as well; one lost with its node is not."""


def past_run(job: JobRecord) -> PastRun | None:
    """None if the job has not ended, or never ran."""
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


def chosen(ended: Iterable[JobRecord], present: Iterable[JobRecord]) -> tuple[PastRun, ...]:
    """The newest runs of each user, workload, job name and account of the ``present`` jobs."""
    left: dict[tuple[str, ...], int] = {}
    for job in present:
        left.update(_kinds(job))
    found = []
    for job in sorted(ended, key=lambda job: (job.end or 0.0, job.id, job.submit), reverse=True):
        run = past_run(job)
        kinds = [kind for kind in _kinds(job) if left.get(kind)]
        if run is not None and kinds:
            for kind in kinds:
                left[kind] -= 1
            found.append(run)
    return tuple(reversed(found))


def _kinds(job: JobRecord) -> dict[tuple[str, ...], int]:
    """What the job has in common with others, and how many runs of each are chosen."""
    kinds: dict[tuple[str, ...], int] = {
        ("workload", job.user, job.workload): MOST_ALIKE,
        ("name", job.user, job.name): MOST_ALIKE,
        ("user", job.user): MOST_OF_USER,
    }
    if job.account:
        kinds["account", job.account] = MOST_OF_ACCOUNT
    return kinds


@dataclass(frozen=True, slots=True)
class EndedRun:
    """``state``: Slurm's, of the job that ended on ``nodes``."""

    at: float
    job: str
    workload: str
    nodes: dict[str, int]
    state: str


def ended_runs(connection: Connection, since: float) -> list[EndedRun]:
    """The last placement of each job that ended, but for short runs that measured it."""
    rows = connection.execute(_ENDS, {"since": since})
    return [EndedRun(*row) for row in rows]


_ENDS = """
SELECT DISTINCT ON (j.id, j.submit) j.ended, j.id, j.workload, p.nodes, j.state
FROM jobs j JOIN placements p ON p.job = j.id AND p.submit = j.submit
WHERE j.ended >= %(since)s AND NOT p.profiling
ORDER BY j.id, j.submit, p.started DESC
"""
