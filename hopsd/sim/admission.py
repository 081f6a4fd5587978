"""Decides which jobs of a workload are simulated, and which workloads are refused."""

from __future__ import annotations

from dataclasses import replace

from hopsd.core.submission.comment import parse
from hopsd.errors import CommentError, InputError
from hopsd.model.ids import JobId
from hopsd.model.scenario import Cluster, Workload
from hopsd.sim.facts import facts_of, unplaceable
from hopsd.sim.information.comment import comment_of
from hopsd.sim.speed import AllocationSpeeds

MAX_SPAN = 10 * 366 * 86400.0
"""Maximum seconds from the first submission to the last, or of one run: ten years. Longer times
are typing errors, and the simulation would never end."""

MAX_ROUNDS = 1_000_000
"""Maximum rounds in that span, as each is kept in memory; ten years have this many by default."""


def admit_jobs(
    cluster: Cluster, workload: Workload, round_seconds: float
) -> tuple[Workload, list[JobId]]:
    """Return the workload without the jobs that do not fit on an idle cluster, and those jobs.

    They would count in no figure, just as no round considers them.

    Raises:
        InputError: if no job is left, or a job is impossible.
    """
    server_names = {server.name for server in cluster.servers}
    for name, factors in workload.server_factor.items():
        unknown = sorted(set(factors) - server_names)
        if unknown:
            raise InputError(f"server_factor.{name}: the cluster has no node {unknown[0]!r}")
    _check_comments(cluster, workload)
    rejected_jobs = unplaceable(cluster, workload)
    refused_ids = set(rejected_jobs)
    admitted_workload = replace(
        workload, jobs=tuple(job for job in workload.jobs if job.id not in refused_ids)
    )
    if not admitted_workload.jobs:
        raise InputError("the workload has no job" + " that fits the cluster" * bool(refused_ids))
    _check_times(cluster, admitted_workload, _span(round_seconds))
    return admitted_workload, rejected_jobs


def horizon(workload: Workload, round_seconds: float) -> float:
    """The time when a run ends in any case, as a job may be almost endlessly slow on some server.

    The last job to arrive has as long as the longest run that is accepted.
    """
    return min(job.submit for job in workload.jobs) + 2 * _span(round_seconds)


def _span(round_seconds: float) -> float:
    return min(MAX_SPAN, MAX_ROUNDS * round_seconds)


def _check_comments(cluster: Cluster, workload: Workload) -> None:
    speeds = AllocationSpeeds(cluster, workload)
    for job in workload.jobs:
        try:
            parse(comment_of(job, speeds.safe_name(job.workload)))
        except CommentError as error:
            raise InputError(f"job {job.id!r} could not be submitted: {error}") from None


def _check_times(cluster: Cluster, workload: Workload, span: float) -> None:
    first = min(job.submit for job in workload.jobs)
    for job, facts in zip(workload.jobs, facts_of(cluster, workload), strict=True):
        if max(job.submit - first, facts.gpu_seconds / min(job.reqs)) > span:
            raise InputError(
                f"job {job.id!r}: give submissions within {span / 86400:.0f} days and runs"
                f" as long: ten years, or {MAX_ROUNDS} rounds"
            )
