"""Runs that started and ended between two readings, recovered from the newest plans."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from hopsd.core.queue.history import (
    advance,
)
from hopsd.model.allocation import Allocation
from hopsd.model.history import JobRecord
from hopsd.model.ids import GpuType, JobId, NodeName, host_of
from hopsd.model.reading import JobReading, Reading, SlurmState
from hopsd.model.step import Step
from hopsd.store.port import Store


@dataclass(frozen=True, slots=True)
class RecentStart:
    """A run that one of the newest plans started, or may have started before its interruption."""

    step: Step
    allocation: Allocation
    start: float
    is_reported: bool


def unseen_runs(
    reading: Reading, before: Mapping[JobId, JobRecord], store: Store, apps: int
) -> dict[JobId, JobRecord]:
    """Return records as of the start of runs that no reading shows.

    Such a run started, and ended or was requeued, between two readings: within a second, or while
    hopsd was down or Slurm or PostgreSQL did not answer. The newest plans say where the run was.
    """
    candidates = [
        job
        for job in reading.jobs
        if (old := before.get(job.id)) is not None
        and _runs_ended(job, old) > (1 if old.allocation else 0)
    ]
    if not candidates:
        return {}
    starts = _recent_starts(store, [job.id for job in candidates])
    types = {node.name: node.gpu_type for node in reading.nodes}
    return {
        job.id: _record_at_start(before[job.id], job, run, types, apps)
        for job in candidates
        for run in starts
        if job.id == run.step.job and _matches_run(job, before[job.id], run)
    }


def _recent_starts(store: Store, jobs: Collection[JobId]) -> list[RecentStart]:
    """Return the newest runs of ``jobs``: of the last plan, and of steps that took longer."""
    interruption, last = store.unfinished_plan(), store.last_plan()
    starts = []
    if last is not None:
        for outcome in last.outcomes:
            allocation = outcome.ran or outcome.actual or outcome.step.target
            start, is_exact = outcome.started or last.made, outcome.started > 0.0
            starts.append(RecentStart(outcome.step, allocation, start, is_exact))
    for outcome in store.last_outcomes(jobs).values():
        if outcome.started:
            allocation = outcome.ran or outcome.actual or outcome.step.target
            starts.append(RecentStart(outcome.step, allocation, outcome.started, is_reported=True))
    if interruption is not None:
        record = interruption[1]
        starts += [
            RecentStart(step, step.target, record.made, is_reported=True) for step in record.steps
        ]
    return [run for run in starts if run.step.target]


def _runs_ended(job: JobReading, old: JobRecord) -> int:
    """Return the maximum number of runs that have ended since the record was made.

    A run that is still completing does not count if the record has seen it completing, or if it was
    requeued and Slurm has counted it among the restarts.
    """
    requeue_count = job.restarts - old.restarts
    is_completing = (
        _is_completing(job) and not requeue_count and old.state is not SlurmState.COMPLETING
    )
    return requeue_count + (1 if job.state.finished or is_completing else 0)


def _is_completing(job: JobReading) -> bool:
    """Whether the run is over but the job still completing: Slurm no longer reports its GPUs."""
    return job.state is SlurmState.COMPLETING and not job.allocation


def _matches_run(job: JobReading, old: JobRecord, run: RecentStart) -> bool:
    """Whether the unseen run of ``job`` is ``run``.

    For a finished job, Slurm reports the nodes and, in whole seconds, the times of its run, but not
    the GPUs: they are those of its release if the nodes are those of the plan. For a requeued job,
    Slurm reports nothing: it is the run known to have started since the last reading.
    """
    hosts, run_hosts = set(job.ran_on), set(map(host_of, run.allocation.nodes))
    if job.state.finished:
        return job.start >= int(run.start) and hosts == run_hosts
    if _is_completing(job):  # Slurm names only the nodes that are not done yet
        return job.start >= int(run.start) and bool(hosts) and hosts <= run_hosts
    return run.is_reported and run.start >= int(old.seen)


def _record_at_start(
    old: JobRecord, job: JobReading, run: RecentStart, types: Mapping[NodeName, GpuType], apps: int
) -> JobRecord:
    start = job.start if job.state.finished or _is_completing(job) else run.start
    waiting = replace(
        job,
        state=SlurmState.PENDING,
        restarts=old.restarts,
        submit=old.submit,
        allocation=Allocation(),
        start=0.0,
        end=0.0,
    )
    record = advance(old, waiting, start, types, old.workload, apps)
    return replace(
        record,
        allocation=run.allocation,
        allocation_since=start,
        profiling=run.step.profiling,
    )
