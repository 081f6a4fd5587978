"""Reads the cluster and brings the records of its jobs up to date."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

from hopsd.bulkhead import describe_error, isolate
from hopsd.core.plausible_reading import plausible
from hopsd.core.queue.history import (
    AppKey,
    advance,
    advance_all,
    is_another,
    present_apps,
    with_service,
)
from hopsd.core.submission.comment import Comment, parse
from hopsd.core.submission.workload import workload_of
from hopsd.errors import CommentError, InputError
from hopsd.model.allocation import Allocation
from hopsd.model.history import JobRecord
from hopsd.model.ids import GpuType, JobId, NodeName, WorkloadName, host_of
from hopsd.model.reading import Hold, JobReading, Reading, SlurmState
from hopsd.model.reason import Reason, ReasonCode, count_of
from hopsd.model.step import Step
from hopsd.slurm.port import Port
from hopsd.store.port import Store

_parse = lru_cache(maxsize=16384)(parse)
"""A job's comment is read at every look; parsing 300 of them takes 6 ms, this 0.1 ms. Each takes
0.4 KB, and 12 KB at most: what is refused, such as a longer one, is not kept."""


SET_ASIDE = "set aside"
"""How the reason begins of a job or node that no plan counts with, since it would break it."""

_MAX_SHOWN = 60
"""Characters of the numbers of an array's tasks."""

_STRANDED = Reason(
    ReasonCode.DEPENDENCY,
    "what it depends on ended in another way than asked for: it never starts;"
    " scontrol update its dependency, or scancel it",
)


_UNREAD = Reason(ReasonCode.HELD, "hops has not read its batch script yet")


def _shown(tasks: str) -> str:
    return tasks if len(tasks) <= _MAX_SHOWN else f"{tasks[:_MAX_SHOWN]}..."


def _later(job: JobReading) -> Reason:
    """Why the tasks of an array still wait for their turn."""
    who = "its turn comes"
    if job.rest is not None:
        who = f"{count_of(len(job.rest), 'tasks')} ({_shown(str(job.rest))}) come up"
    if job.hold is Hold.USER:
        return Reason(ReasonCode.HELD, f"{who} when its owner or an operator releases them")
    why = (
        f"it lets {job.task_limit} of them run at a time (%{job.task_limit})"
        if job.throttled
        else "there are GPUs for no more of them at a time"
    )
    return Reason(ReasonCode.LIMIT, f"{who} as others of its array end: {why}")


@dataclass(frozen=True, slots=True)
class Observation:
    """``comments``: of the jobs hops plans for; ``errors``: why it plans without others.

    ``released`` jobs were given back to plain Slurm: their GPUs count as taken, that is all.
    """

    reading: Reading
    comments: Mapping[JobId, Comment]
    errors: Mapping[JobId, Reason]
    records: Mapping[JobId, JobRecord]
    released: frozenset[JobId]

    def only(self, jobs: Iterable[JobId]) -> Observation:
        """The same, but planned for no jobs other than ``jobs``."""
        return replace(self, comments={job: self.comments[job] for job in jobs})

    def avoiding(self, avoided: Mapping[JobId, frozenset[NodeName]]) -> Observation:
        """The same, but no plan puts the jobs of ``avoided`` on these nodes."""
        if not avoided:
            return self
        jobs = tuple(
            replace(job, excluded=job.excluded | avoided[job.id], avoids=avoided[job.id])
            if job.id in avoided
            else job
            for job in self.reading.jobs
        )
        return replace(self, reading=replace(self.reading, jobs=jobs))

    def without(self, aside: Mapping[JobId, Reason]) -> Observation:
        """The same, but no plan is made for the jobs of ``aside``."""
        comments = {job: c for job, c in self.comments.items() if job not in aside}
        reasons = {job: reason for job, reason in aside.items() if job in self.comments}
        return replace(self, comments=comments, errors={**self.errors, **reasons})


def observe(
    port: Port, store: Store, requirements_max: int, reading: Reading | None = None
) -> Observation:
    """Read unless a ``reading`` is given, parse the comments, advance and save the records.

    A job whose numbers are out of bounds, or whose record cannot be brought up to date or saved,
    is set aside: it is in ``errors`` with the reason.
    """
    sound = plausible(reading or port.read())
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
        if job.stranded and job.state is SlurmState.PENDING:
            errors[job.id] = _STRANDED
        elif job.barred and job.state is SlurmState.PENDING:
            errors[job.id] = Reason(ReasonCode.HELD, job.barred)
        elif job.rest is not None or (job.throttled and job.state is SlurmState.PENDING):
            errors[job.id] = _later(job)
        else:
            comments[job.id] = comment
    before = store.jobs()
    for job_id in _unread(reading, before) & comments.keys():
        del comments[job_id]
        errors[job_id] = _UNREAD
    app_of = partial(_app, range_values=requirements_max)
    apps = present_apps(before, app_of)
    if unseen := _unseen_runs(reading, before, store, apps):
        store.save_jobs(unseen.values())
        before = {**before, **unseen}
    workloads = _workloads(reading, before, store)

    def brought_up(jobs: Sequence[JobReading]) -> dict[JobId, JobRecord]:
        """The records of ``jobs`` brought up to date; those of other jobs stay as they are."""
        others = {job.id for job in reading.jobs} - {job.id for job in jobs}
        old = {job: record for job, record in before.items() if job not in others}
        after = advance_all(old, replace(reading, jobs=tuple(jobs)), workloads, apps)
        after = with_service(old, after, app_of)
        store.save_jobs(after.values())
        return after

    records, failed = isolate(reading.jobs, brought_up)
    for job, raised in failed:
        comments.pop(job.id, None)
        errors[job.id] = Reason(ReasonCode.ERROR, f"{SET_ASIDE}: {describe_error(raised)}")
        if job.id in before:
            records[job.id] = before[job.id]
    released = frozenset(job for job, record in records.items() if record.released)
    for job_id in released:
        comments.pop(job_id, None)
        errors.pop(job_id, None)
    return Observation(reading, comments, errors, records, released)


@dataclass(frozen=True, slots=True)
class _Begun:
    """A run that one of the newest plans began, or may have begun before it was interrupted."""

    step: Step
    allocation: Allocation
    start: float
    told: bool


def _unseen_runs(
    reading: Reading, before: Mapping[JobId, JobRecord], store: Store, apps: int
) -> dict[JobId, JobRecord]:
    """Records as they were when a run began that no reading shows.

    It began, and ended or was requeued, between two looks: within a second, or while hopsd was
    killed, or Slurm or PostgreSQL away. The newest plans say where it was.
    """
    unseen = [
        job
        for job in reading.jobs
        if (old := before.get(job.id)) is not None
        and _runs_ended(job, old) > (1 if old.allocation else 0)
    ]
    if not unseen:
        return {}
    begun = _begun(store)
    types = {node.name: node.gpu_type for node in reading.nodes}
    return {
        job.id: _at_its_start(before[job.id], job, run, types, apps)
        for job in unseen
        for run in begun
        if job.id == run.step.job and _was_this(job, before[job.id], run)
    }


def _begun(store: Store) -> list[_Begun]:
    """Each job's newest such run."""
    left, last = store.unfinished_plan(), store.last_plan()
    found = []
    if last is not None:
        for outcome in last.outcomes:
            there = outcome.ran or outcome.actual or outcome.step.target
            start, told = outcome.started or last.made, outcome.started > 0.0
            found.append(_Begun(outcome.step, there, start, told))
    if left is not None:
        record = left[1]
        found += [_Begun(step, step.target, record.made, told=True) for step in record.steps]
    return [run for run in found if run.step.target]


def _runs_ended(job: JobReading, old: JobRecord) -> int:
    """How many runs have ended since the record was made, at most.

    Of a run that is still completing: the record has it if it was already completing then, and
    Slurm has counted it among the restarts if it was requeued.
    """
    requeued = job.restarts - old.restarts
    completing = _completing(job) and not requeued and old.state is not SlurmState.COMPLETING
    return requeued + (1 if job.state.finished or completing else 0)


def _completing(job: JobReading) -> bool:
    """Whether its run is over and the job still completing: Slurm no longer tells its GPUs."""
    return job.state is SlurmState.COMPLETING and not job.allocation


def _was_this(job: JobReading, old: JobRecord, run: _Begun) -> bool:
    """Whether the unseen run of ``job`` is ``run``.

    Slurm names a finished job's nodes and, to whole seconds, when it ran, but not its GPUs: they
    are what its release was made with, believed where the nodes are the plan's. Of a requeued one
    Slurm says nothing: among the runs known to have begun, it is the one since the last look.
    """
    here, planned = set(job.ran_on), set(map(host_of, run.allocation.nodes))
    if job.state.finished:
        return job.start >= int(run.start) and here == planned
    if _completing(job):  # Slurm names only the nodes that are not done yet
        return job.start >= int(run.start) and bool(here) and here <= planned
    return run.told and run.start >= int(old.seen)


def _at_its_start(
    old: JobRecord, job: JobReading, run: _Begun, types: Mapping[NodeName, GpuType], apps: int
) -> JobRecord:
    start = job.start if job.state.finished or _completing(job) else run.start
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


def _app(job: JobRecord, range_values: int) -> AppKey:
    try:
        app = _parse(job.comment, range_values=range_values).app
    except InputError:
        app = None
    return job.id if app is None else (job.user, app)


def _unread(reading: Reading, known: Mapping[JobId, JobRecord]) -> set[JobId]:
    """The jobs whose workload is unknown until their script is read."""
    unread = (job for job in reading.jobs if job.script is None)
    return {
        job.id
        for job in unread
        if (old := known.get(job.id)) is None or not old.workload or is_another(job, old)
    }


def _workloads(
    reading: Reading, known: Mapping[JobId, JobRecord], store: Store
) -> dict[JobId, WorkloadName]:
    """Each job's workload, from its own program, or else from the last job of the same script.

    Not of a job whose script is still to be read: its record keeps the workload that it has.
    """
    jobs = [job for job in reading.jobs if job.script is not None]
    scripts = {job.id: workload_of(job) for job in jobs}
    latest = store.programs(scripts.values())
    own = {job: record.program for job, record in known.items()}
    return {
        job.id: workload_of(job, own.get(job.id) or latest.get(scripts[job.id], "")) for job in jobs
    }
