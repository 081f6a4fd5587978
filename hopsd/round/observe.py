"""Reads the cluster and brings the records of its jobs up to date."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial

from hopsd.core.queue.history import (
    AppKey,
    advance_all,
    is_another,
    present_apps,
    with_service,
)
from hopsd.core.submission.comment import Comment, parse
from hopsd.core.submission.workload import workload_of
from hopsd.errors import CommentError, InputError
from hopsd.model.history import JobRecord
from hopsd.model.ids import JobId, WorkloadName
from hopsd.model.isolation import describe_error, find_failing_items
from hopsd.model.reading import Hold, JobReading, Reading, SlurmState
from hopsd.model.reason import Reason, ReasonCode, count_of
from hopsd.round.observation import SET_ASIDE, Observation
from hopsd.round.plausible_reading import plausible
from hopsd.round.unseen_runs import unseen_runs
from hopsd.slurm.port import Port
from hopsd.store.port import Store

_parse = lru_cache(maxsize=16384)(parse)
"""Every observation reads each job's comment. Parsing 300 of them takes 6 ms, a look-up in the
cache 0.1 ms. An entry takes 0.4 KB, and 12 KB at most: comments that are refused, such as longer
ones, are not cached."""


_MAX_SHOWN = 60
"""Maximum length of the task numbers of an array in a reason."""

_STRANDED_REASON = Reason(
    ReasonCode.DEPENDENCY,
    "its dependency can no longer be met, so it never starts: change the dependency with"
    " scontrol update, or scancel the job",
)


_UNREAD = Reason(ReasonCode.HELD, "hops has not read its batch script yet")


def _task_text(tasks: str) -> str:
    return tasks if len(tasks) <= _MAX_SHOWN else f"{tasks[:_MAX_SHOWN]}..."


def _later(job: JobReading) -> Reason:
    """Return why a task of an array, or the rest of its tasks, still waits."""
    subject = "it will start"
    if job.rest is not None:
        subject = f"{count_of(len(job.rest), 'tasks')} ({_task_text(str(job.rest))}) will start"
    if job.hold is Hold.USER:
        return Reason(ReasonCode.HELD, f"{subject} once released by the owner or an operator")
    cause = (
        f"at most {job.task_limit} of them run at a time (%{job.task_limit})"
        if job.is_throttled
        else "there are no GPUs for more of them at a time"
    )
    return Reason(ReasonCode.LIMIT, f"{subject} as other tasks of the array end: {cause}")


def observe(
    port: Port, store: Store, requirements_max: int, reading: Reading | None = None
) -> Observation:
    """Read the cluster (unless ``reading`` is given), parse the comments, update the records.

    A job whose numbers are out of bounds, or whose record cannot be updated or saved, is set aside:
    it is in ``errors`` with the reason. The record of a job that Slurm has forgotten stays open
    until its accounting has answered how the job ended.
    """
    reading, before = _with_forgotten_jobs(port, reading or port.read(), store.jobs())
    sound = plausible(reading)
    reading, errors = sound.reading, dict(sound.aside)
    comments: dict[JobId, Comment] = {}
    for job in reading.jobs:
        if job.state.finished or job.id in errors:
            continue
        try:
            comment = _parse(job.comment, range_values=requirements_max)
        except CommentError as error:
            errors[job.id] = Reason(ReasonCode.ERROR, str(error))
            continue
        if job.is_stranded and job.state is SlurmState.PENDING:
            errors[job.id] = _STRANDED_REASON
        elif job.bar and job.state is SlurmState.PENDING:
            errors[job.id] = Reason(ReasonCode.HELD, job.bar)
        elif job.rest is not None or (job.is_throttled and job.state is SlurmState.PENDING):
            errors[job.id] = _later(job)
        else:
            comments[job.id] = comment
    for job_id in _unread(reading, before) & comments.keys():
        del comments[job_id]
        errors[job_id] = _UNREAD
    app_of = partial(_app, range_values=requirements_max)
    apps = present_apps(before, app_of)
    if missed_runs := unseen_runs(reading, before, store, apps):
        store.save_jobs(missed_runs.values())
        before = {**before, **missed_runs}
    workloads = _workloads(reading, before, store)

    def brought_up(jobs: Sequence[JobReading]) -> dict[JobId, JobRecord]:
        """Update and save the records of ``jobs``; those of other jobs stay as they are."""
        other_jobs = {job.id for job in reading.jobs} - {job.id for job in jobs}
        old = {job: record for job, record in before.items() if job not in other_jobs}
        after = advance_all(old, replace(reading, jobs=tuple(jobs)), workloads, apps)
        after = with_service(old, after, app_of)
        store.save_jobs(after.values())
        return after

    records, failures = find_failing_items(reading.jobs, brought_up)
    for job, failure in failures:
        comments.pop(job.id, None)
        errors[job.id] = Reason(ReasonCode.ERROR, f"{SET_ASIDE}: {describe_error(failure)}")
        if job.id in before:
            records[job.id] = before[job.id]
    released_jobs = frozenset(job for job, record in records.items() if record.released)
    for job_id in released_jobs:
        comments.pop(job_id, None)
        errors.pop(job_id, None)
    return Observation(
        reading, _limit_requirements(comments, records), errors, records, released_jobs
    )


def _with_forgotten_jobs(
    port: Port, reading: Reading, before: Mapping[JobId, JobRecord]
) -> tuple[Reading, Mapping[JobId, JobRecord]]:
    """Add to ``reading`` the jobs that Slurm has forgotten, as its accounting knows them.

    Also returns the records without those of the jobs about which the answer is pending.
    """
    forgotten_jobs = before.keys() - {job.id for job in reading.jobs}
    if not forgotten_jobs:
        return reading, before
    ends = port.ended_jobs([before[job] for job in sorted(forgotten_jobs)])
    pending_jobs = forgotten_jobs - ends.keys()
    return (
        replace(reading, jobs=(*reading.jobs, *filter(None, ends.values()))),
        {job: record for job, record in before.items() if job not in pending_jobs},
    )


def _limit_requirements(
    comments: Mapping[JobId, Comment], records: Mapping[JobId, JobRecord]
) -> dict[JobId, Comment]:
    """Remove from ``comments`` the GPU counts with which jobs left GPUs unused."""
    return {
        job: comment.up_to(records[job].gpus_most) if job in records else comment
        for job, comment in comments.items()
    }


def _app(job: JobRecord, range_values: int) -> AppKey:
    try:
        app = _parse(job.comment, range_values=range_values).app
    except InputError:
        app = None
    return job.id if app is None else (job.user, app)


def _unread(reading: Reading, records: Mapping[JobId, JobRecord]) -> set[JobId]:
    """Return the jobs whose workload is unknown until their script is read."""
    unread = (job for job in reading.jobs if job.script is None)
    return {
        job.id
        for job in unread
        if (old := records.get(job.id)) is None or not old.workload or is_another(job, old)
    }


def _workloads(
    reading: Reading, records: Mapping[JobId, JobRecord], store: Store
) -> dict[JobId, WorkloadName]:
    """Return each job's workload, by its program, or else by that of the script's last job.

    Jobs whose script has not been read yet are left out: their records keep their workload.
    """
    jobs = [job for job in reading.jobs if job.script is not None]
    scripts = {job.id: workload_of(job) for job in jobs}
    latest = store.programs(scripts.values())
    programs = {job: record.program for job, record in records.items()}
    return {
        job.id: workload_of(job, programs.get(job.id) or latest.get(scripts[job.id], ""))
        for job in jobs
    }
