"""Job records, updated by each reading (waiting time: section 3.6, eq. 8)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from hopsd.model.allocation import Allocation
from hopsd.model.history import JobRecord
from hopsd.model.ids import AppName, GpuType, JobId, NodeName, UserName, WorkloadName
from hopsd.model.reading import Hold, JobReading, Reading, SlurmState, has_new_owner

FAILED_AGAIN_SECONDS = 60.0
"""A script that refuses a second start fails within this time of it."""

OCCUPYING_STATES = frozenset({SlurmState.RUNNING, SlurmState.COMPLETING, SlurmState.SUSPENDED})


def eligible(job: JobReading, now: float) -> bool:
    """Whether a pending job's time counts as waiting.

    It does not while the job is held by its user or by its array's task limit, nor before its
    dependency is met or the user's begin time has come.
    """
    kept_back = job.hold is Hold.USER or job.dependency or job.is_throttled
    return not kept_back and job.begin <= now


def advance_all(
    records: Mapping[JobId, JobRecord],
    reading: Reading,
    workloads: Mapping[JobId, WorkloadName],
    apps: int = 1,
) -> dict[JobId, JobRecord]:
    """Return all records after ``reading``: of known and new jobs, and jobs that Slurm forgot.

    ``workloads``: the workload of each job as known now. ``apps``: the number of apps present since
    the previous reading.

    A job that not even Slurm's accounting knows any more ended between two readings more than
    MinJobAge apart: its record is closed at the time when it was last seen.
    """
    updated_records = {}
    types = {node.name: node.gpu_type for node in reading.nodes}
    for job in reading.jobs:
        old = records.get(job.id)
        if old is not None and is_another(job, old):
            # This is kept only if the new job has ended, too; else the store closes the old record.
            updated_records[job.id], old = closed_record(old), None
        if old is None and job.state.finished:
            continue
        old = old or _first_seen(job, reading.now, records.get(job.array))
        workload = workloads.get(job.id, old.workload)
        updated_records[job.id] = advance(old, job, reading.now, types, workload, apps)
    for job_id in records.keys() - {job.id for job in reading.jobs}:
        updated_records[job_id] = closed_record(records[job_id])
    return updated_records


def is_another(job: JobReading, old: JobRecord) -> bool:
    """Whether Slurm reused the id of a forgotten job for a new one."""
    return has_new_owner(job, old.submit, old.restarts)


def closed_record(old: JobRecord) -> JobRecord:
    """Close the record of a job that Slurm has forgotten."""
    return replace(
        old, state=SlurmState.OTHER, end=old.seen, allocation=Allocation(), profiling=False
    )


def advance(
    old: JobRecord,
    job: JobReading,
    now: float,
    types: Mapping[NodeName, GpuType],
    workload: WorkloadName,
    apps: int,
) -> JobRecord:
    """Bring ``old`` up to ``now``, using Slurm's own start and end times.

    A job that failed in a profile run has not ended: it goes back to the queue.
    """
    now = max(now, old.seen)
    wait, run = _elapsed_seconds(old, job, now)
    holds = bool(job.allocation) and job.state in OCCUPYING_STATES
    by_type, attained_seconds = old.run_seconds_by_type, old.attained_gpu_seconds
    if run and (ran_on := job.allocation or old.allocation):
        attained_seconds += run * ran_on.gpus
        if gpu_type := types.get(ran_on.nodes[0]):
            by_type = {**by_type, gpu_type: by_type.get(gpu_type, 0.0) + run}
    # Fields are passed by name: this runs for every job at every reading, and replace() would take
    # twice as long because it copies the other fields.
    return JobRecord(
        id=old.id,
        user=old.user,
        name=old.name,
        comment=old.comment,
        workload=workload,
        submit=old.submit,
        seen=now,
        state=job.state,
        wait_seconds=old.wait_seconds + wait,
        run_seconds=old.run_seconds + run,
        attained_gpu_seconds=attained_seconds,
        restarts=max(old.restarts, job.restarts),
        samples_done=old.samples_done,
        restart_seconds=old.restart_seconds,
        allocation=job.allocation if holds else Allocation(),
        allocation_since=_allocation_start(old, job) if holds else _requeue_time(old, job, now),
        profiling=holds and job.profiling,
        age_seconds=old.age_seconds,
        end=(job.end or now) if job.state.finished and not job.ended_in_profile else None,
        released=job.released or (old.released and not _held_again(job)),
        run_seconds_by_type=by_type,
        app_seconds=old.app_seconds + apps * (now - old.seen),
        app_gpu_seconds=old.app_gpu_seconds,
        program=old.program,
        saved=old.saved,
        samples_planned=old.samples_planned,
        account=job.account or old.account,
        communication_timed=old.communication_timed,
        keeps_steps=old.keeps_steps,
        time_known=old.time_known,
        answers_signal=old.answers_signal,
        failed_again=old.failed_again or _failed_again(job, old.run_seconds + run),
        gpus_most=old.gpus_most,
    )


def _failed_again(job: JobReading, run_seconds: float) -> bool:
    """Whether the job, which ran for ``run_seconds`` in all, failed soon after its last restart."""
    has_failed = job.state is SlurmState.FAILED and not job.ended_in_profile
    last = job.end - job.start
    was_soon = job.start > 0 and 0.0 <= last < FAILED_AGAIN_SECONDS and last < run_seconds - last
    return has_failed and job.restarts > 0 and was_soon


def _held_again(job: JobReading) -> bool:
    """Whether slurmctld lost the release of the job, since it restored an older state.

    The job then has hops' hold again, without the mark of a release.
    """
    return job.state is SlurmState.PENDING and job.hold is Hold.HOPS


def _allocation_start(old: JobRecord, job: JobReading) -> float | None:
    """Return the start of the allocation that the job holds."""
    return old.allocation_since if _continues(old, job) else job.start


def _continues(old: JobRecord, job: JobReading) -> bool:
    """Whether the run that holds GPUs is the record's, regardless of the start that Slurm reports.

    If nodes are powered up for a job, Slurm moves the job's start to when they were ready
    (`job_config_fini`). The GPUs have been the job's since the first start, in a single run.
    """
    is_same = job.allocation == old.allocation and job.restarts == old.restarts
    return is_same and old.allocation_since is not None


def _requeue_time(old: JobRecord, job: JobReading, now: float) -> float | None:
    """Return when a waiting job was last requeued (then Slurm's submit time), or else ``now``."""
    if not old.allocation and job.restarts == old.restarts:
        return old.allocation_since
    if job.state is SlurmState.PENDING and job.submit > (old.allocation_since or 0.0):
        return job.submit
    return now if old.allocation and job.state is SlurmState.PENDING else None


def _elapsed_seconds(old: JobRecord, job: JobReading, now: float) -> tuple[float, float]:
    """Return the seconds waited and the seconds run since ``old.seen``."""
    interval = now - old.seen
    if job.state in OCCUPYING_STATES or job.state.finished:
        end = min(now, job.end) if job.state.finished and job.end else now
        end = max(end, old.seen)
        if _continues(old, job) or not job.start:
            begin = _assumed_start(job, old, end)
        else:
            begin = min(max(job.start, old.seen), end)
        return (begin - old.seen if not old.allocation else 0.0), end - begin
    if old.allocation:
        was_requeued = job.restarts > old.restarts  # Slurm's submit time is then the requeue's
        end = min(max(job.submit, old.seen), now) if was_requeued else now
        return (now - end if eligible(job, now) else 0.0), end - old.seen
    return (interval if eligible(job, now) else 0.0), 0.0


def _assumed_start(job: JobReading, old: JobRecord, end: float) -> float:
    """Return the start time if Slurm gives none; a job that ended while pending has no run time."""
    return end if job.state.finished and not old.allocation else old.seen


def _first_seen(job: JobReading, now: float, array: JobRecord | None) -> JobRecord:
    """Return a record that begins at the submit time, so that unseen waiting counts.

    A task that is split off its array has waited as long as the array's other tasks.
    """
    if array is not None and array.submit == job.submit:
        return replace(array, id=job.id, state=SlurmState.PENDING)
    begin = job.submit if job.restarts else max(job.submit, job.begin)
    return JobRecord(
        id=job.id,
        user=job.user,
        name=job.name,
        comment=job.comment,
        workload=WorkloadName(""),
        submit=job.submit,
        seen=min(begin, now),
        state=SlurmState.PENDING,
        account=job.account,
    )


AppKey = tuple[UserName, AppName] | JobId
"""An app, or a single job that counts as one."""


def present_apps(records: Mapping[JobId, JobRecord], app_of: Callable[[JobRecord], AppKey]) -> int:
    """Return the number of apps with a job that has not ended; at least 1."""
    return max(1, len({app_of(record) for record in records.values() if record.end is None}))


def with_service(
    records: Mapping[JobId, JobRecord],
    updated_records: dict[JobId, JobRecord],
    app_of: Callable[[JobRecord], AppKey],
) -> dict[JobId, JobRecord]:
    """Add the GPU time of jobs that just ended to the records of the other jobs of their apps."""
    service: dict[AppKey, float] = {}
    for job, record in updated_records.items():
        if record.end is not None and (job not in records or records[job].end is None):
            app = app_of(record)
            service[app] = service.get(app, 0.0) + record.attained_gpu_seconds
    if not service:
        return updated_records
    return {
        job: replace(record, app_gpu_seconds=record.app_gpu_seconds + gpu_seconds)
        if record.end is None and (gpu_seconds := service.get(app_of(record), 0.0))
        else record
        for job, record in updated_records.items()
    }


def with_ages(records: Mapping[JobId, JobRecord], ages: Mapping[JobId, float]) -> list[JobRecord]:
    """Return the records whose expected run time (eq. 9) has changed, with the new one."""
    return [
        replace(records[job], age_seconds=age)
        for job, age in ages.items()
        if records[job].age_seconds != age
    ]
