"""Look at the cluster and bring hops' memory of its jobs up to date."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

from hopsd.bulkhead import isolate, told
from hopsd.core.plausible_reading import plausible
from hopsd.core.queue.history import AppKey, advance_all, present_apps, with_service
from hopsd.core.submission.comment import Comment, parse
from hopsd.core.submission.workload import workload_of
from hopsd.errors import CommentError, InputError
from hopsd.model.history import JobRecord
from hopsd.model.ids import JobId, NodeName, WorkloadName
from hopsd.model.reading import JobReading, Reading, SlurmState
from hopsd.model.reason import Reason, ReasonCode
from hopsd.model.step import Step
from hopsd.slurm.port import Port
from hopsd.store.port import PlanRecord, Store

_parse = lru_cache(maxsize=65536)(parse)
"""A job's comment is read at every look; parsing 300 of them takes 6 ms, this 0.1 ms."""


SET_ASIDE = "set aside"
"""How the reason begins of a job or node that no plan counts with, since it would break it."""

_STRANDED = Reason(
    ReasonCode.DEPENDENCY,
    "what it depends on ended in another way than asked for: it never starts;"
    " scontrol update its dependency, or scancel it",
)


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
        """The same, but that a plan is made for no job beside ``jobs``."""
        return replace(self, comments={job: self.comments[job] for job in jobs})

    def avoiding(self, shunned: Mapping[JobId, frozenset[NodeName]]) -> Observation:
        """The same, but that no plan puts the jobs of ``shunned`` on these nodes."""
        if not shunned:
            return self
        jobs = tuple(
            replace(job, excluded=job.excluded | shunned[job.id]) if job.id in shunned else job
            for job in self.reading.jobs
        )
        return replace(self, reading=replace(self.reading, jobs=jobs))

    def without(self, aside: Mapping[JobId, Reason]) -> Observation:
        """The same, but that no plan is made for the jobs of ``aside``."""
        comments = {job: c for job, c in self.comments.items() if job not in aside}
        reasons = {job: reason for job, reason in aside.items() if job in self.comments}
        return replace(self, comments=comments, errors={**self.errors, **reasons})


def observe(port: Port, store: Store, requirements_max: int) -> Observation:
    """Read, parse the comments, advance and save the records.

    A job whose numbers are out of bounds, or whose record cannot be brought up to date or saved,
    is set aside: it is in ``errors`` with the reason.
    """
    sound = plausible(port.read())
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
        else:
            comments[job.id] = comment
    before = store.jobs()
    if unseen := _unseen_runs(reading, before, store):
        store.save_jobs(unseen)
    app_of = partial(_app, range_values=requirements_max)
    workloads = _workloads(reading, before, store)
    apps = present_apps(before, app_of)

    def brought_up(jobs: Sequence[JobReading]) -> dict[JobId, JobRecord]:
        """Of ``jobs``; what is known of the others stays as it is."""
        others = {job.id for job in reading.jobs} - {job.id for job in jobs}
        old = {job: record for job, record in before.items() if job not in others}
        after = advance_all(old, replace(reading, jobs=tuple(jobs)), workloads, apps)
        after = with_service(old, after, app_of)
        store.save_jobs(after.values())
        return after

    records, failed = isolate(reading.jobs, brought_up)
    for job, raised in failed:
        comments.pop(job.id, None)
        errors[job.id] = Reason(ReasonCode.ERROR, f"{SET_ASIDE}: {told(raised)}")
        if job.id in before:
            records[job.id] = before[job.id]
    released = frozenset(job for job, record in records.items() if record.released)
    for job_id in released:
        comments.pop(job_id, None)
        errors.pop(job_id, None)
    return Observation(reading, comments, errors, records, released)


def _unseen_runs(
    reading: Reading, before: Mapping[JobId, JobRecord], store: Store
) -> list[JobRecord]:
    """Records as they would have been while a job ran that nobody saw running.

    It began, and ended or was requeued, between two looks: hopsd was killed, or Slurm or PostgreSQL
    was away. The newest plans tell where it was to run.
    """
    unseen = [
        job
        for job in reading.jobs
        if (old := before.get(job.id)) is not None
        and _runs_ended(job, old) > (1 if old.allocation else 0)
    ]
    if not unseen:
        return []
    left, last = store.unfinished_plan(), store.last_plan()
    plans = ([(left[1], True)] if left else []) + ([(last, False)] if last else [])
    runs = {
        job.id: replace(
            before[job.id],
            allocation=step.target,
            allocation_since=job.start if job.state.finished else plan.made,
            profiling=step.profiling,
        )
        for plan, was_left in reversed(plans)
        for step in plan.steps
        for job in unseen
        if job.id == step.job and step.target and _carried_out(job, step, plan, left=was_left)
    }
    return list(runs.values())


def _runs_ended(job: JobReading, old: JobRecord) -> int:
    """How many runs have ended since the record was made, at most."""
    return job.restarts - old.restarts + (1 if job.state.finished else 0)


def _carried_out(job: JobReading, step: Step, plan: PlanRecord, *, left: bool) -> bool:
    """Whether the run of ``job`` that nobody saw is the one of ``step``.

    Slurm names a finished job's nodes and, to whole seconds, when it ran, but not its GPUs: they
    are what its release was made with, believed where the nodes are the plan's. Of a requeued one
    Slurm tells nothing; a plan that came to its end has read back what it started.
    """
    if not job.state.finished:
        return left
    return job.start >= int(plan.made) and set(job.ran_on) == set(step.target.nodes)


def _app(job: JobRecord, range_values: int) -> AppKey:
    try:
        app = _parse(job.comment, range_values=range_values).app
    except InputError:
        app = None
    return job.id if app is None else (job.user, app)


def _workloads(
    reading: Reading, known: Mapping[JobId, JobRecord], store: Store
) -> dict[JobId, WorkloadName]:
    """By what a job itself trains with, or else what the last job of the same script did."""
    scripts = {job.id: workload_of(job) for job in reading.jobs}
    latest = store.programs(scripts.values())
    own = {job: record.program for job, record in known.items()}
    return {
        job.id: workload_of(job, own.get(job.id) or latest.get(scripts[job.id], ""))
        for job in reading.jobs
    }
