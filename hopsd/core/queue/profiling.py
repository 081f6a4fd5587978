"""The profiling queue: new workloads are measured before they compete (section 3.2).

A waiting job whose workload has no basic times on a GPU type it could use gets one GPU of that
type for some iterations, before the policy plans the other jobs. Waiting jobs with the same
workload share the work: each takes a different type. A failed run is not repeated for a while;
meanwhile the job competes with an assumed speed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hopsd.core.queue.competing import idle_gpus
from hopsd.core.queue.history import OCCUPYING_STATES
from hopsd.core.queue.profile_runs import (
    Pair,
    ProfilingSettings,
    adopted_runs,
    follow_run,
    run_summary,
    short_of_memory,
)
from hopsd.core.queue.profile_starts import Candidate, RunQuota, runs_to_begin
from hopsd.core.queue.reallocation import with_allocations
from hopsd.core.submission.comment import Comment
from hopsd.model.allocation import Allocation
from hopsd.model.history import JobRecord, ProfileRun
from hopsd.model.ids import GpuType, JobId, UserName, job_order
from hopsd.model.job import Job, JobState
from hopsd.model.knowledge import Knowledge, Shortage
from hopsd.model.plan import Plan, Snapshot
from hopsd.model.reading import JobReading, Reading, SlurmState
from hopsd.model.reason import Reason
from hopsd.model.step import Step, StepKind

LEAVE_SECONDS = 10.0
"""A job that has measured enough leaves by itself; after this time it is stopped."""


@dataclass(frozen=True, slots=True)
class ClusterView:
    """A reading, with the records and the comments of its jobs."""

    reading: Reading
    records: Mapping[JobId, JobRecord]
    comments: Mapping[JobId, Comment]
    jobs: Mapping[JobId, JobReading] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "jobs", {job.id: job for job in self.reading.jobs})

    def user_of(self, job: JobId) -> UserName:
        """Return the job's user, "" for a job without a record."""
        return self.records[job].user if job in self.records else UserName("")

    def candidates(self, snapshot: Snapshot, settings: ProfilingSettings) -> list[Candidate]:
        """Return the waiting jobs of the snapshot that may be profiled."""
        eligible_jobs = (
            job
            for job in snapshot.jobs
            if _waits(job, self.jobs[job.id])
            and self._is_wanted(job, settings)
            and not _why_not_profiled(self.jobs[job.id], self.comments[job.id])
        )
        return [
            Candidate(job, record.user, record.workload, self.jobs[job.id].restarts)
            for job in eligible_jobs
            for record in [self.records[job.id]]
        ]

    def _is_wanted(self, job: Job, settings: ProfilingSettings) -> bool:
        """Whether the user or the site wants the job's workload to be measured first."""
        return settings.new_workloads or self.comments[job.id].profile

    def unmeasurable(
        self, snapshot: Snapshot, measured_pairs: Collection[Pair], settings: ProfilingSettings
    ) -> dict[JobId, str]:
        """Explain why waiting jobs whose workload was never measured get no profile run."""
        measured_workloads = {workload for workload, _ in measured_pairs}
        notes = {}
        for job in snapshot.jobs:
            reading = self.jobs[job.id]
            if not (_waits(job, reading) and self._is_wanted(job, settings)):
                continue
            obstacle = _why_not_profiled(reading, self.comments[job.id])
            if obstacle and self.records[job.id].workload not in measured_workloads:
                notes[job.id] = f"hops makes no short run to measure its speed: {obstacle}"
        return notes


def _waits(job: Job, reading: JobReading) -> bool:
    waits = job.state is JobState.WAITING and not job.running
    return waits and reading.state is SlurmState.PENDING


def _why_not_profiled(reading: JobReading, comment: Comment) -> str:
    """Say why a job may not be stopped and requeued, or would fail on one GPU; "" if neither."""
    if not comment.preempt:
        return "preempt=no forbids stopping it"
    option = "--no-requeue" if not reading.requeue else "--deadline" if reading.deadline else ""
    if option:
        return f"{option} forbids starting it again"
    if reading.is_awaited:  # Slurm would take a failed run for the end of this job
        return "jobs outside hops depend on it"
    if min(comment.reqs) > 1:
        return f"it asks for {min(comment.reqs)} GPUs or more, and the run has one"
    options = reading.options
    if (options.ranks or 1) > 1:
        return f"its script starts {options.ranks} ranks on each node, and the run has one GPU"
    repeats = [words for effect, words in _REPEATS.items() if effect in options.repeats]
    return f"its script {repeats[0]}" if repeats else ""


_REPEATS = {
    "refuses": "fails at a second start",
    "submits": "submits jobs, and a run would do so once more",
    "requeues": "requeues itself, and a run would do so once more",
    "counts": "reads SLURM_RESTART_COUNT, and a run would do so once more",
}


@dataclass(frozen=True, slots=True)
class Profiling:
    """A plan's profile runs.

    ``updates``: runs to save; ``steps``: for jobs that begin, leave or return to the queue.
    ``snapshot``: what remains for the policy, without these jobs in the queue and without their
    GPUs. ``staying``: jobs whose run continues. ``unmeasurable``: why jobs get no run.
    """

    snapshot: Snapshot
    updates: tuple[ProfileRun, ...] = ()
    steps: tuple[Step, ...] = ()
    staying: frozenset[JobId] = frozenset()
    failures: Mapping[JobId, ProfileRun] = field(default_factory=dict)
    unmeasurable: Mapping[JobId, str] = field(default_factory=dict)

    @property
    def moving(self) -> frozenset[JobId]:
        return frozenset(step.job for step in self.steps)

    def compatible_with(self, plan: Plan) -> Profiling:
        """Drop the runs that do not fit alongside ``plan``.

        A policy that never preempts does not free the GPUs that such a run would need.
        """
        free = dict(
            zip((n.name for n in self.snapshot.nodes), idle_gpus(self.snapshot), strict=True)
        )
        for allocation in plan.placements.values():
            for node, gpus in allocation:
                free[node] -= gpus
        unfit = {
            step.job
            for step in self.steps
            if step.kind is StepKind.START and free[step.target.nodes[0]] < 0
        }
        if not unfit:
            return self
        return replace(
            self,
            updates=tuple(
                run
                for run in self.updates
                if run.job not in unfit or run.begin != self.snapshot.now
            ),
            steps=tuple(step for step in self.steps if step.job not in unfit),
        )

    def explain(self, waiting: Mapping[JobId, Reason]) -> dict[JobId, Reason]:
        """Add what went wrong in profile runs to the reasons why jobs wait."""
        return {
            job: replace(reason, text=f"{reason.text}; {run_summary(self.failures[job])}")
            if job in self.failures
            else reason
            for job, reason in waiting.items()
        }


def known_pairs(knowledge: Knowledge, types: Iterable[GpuType], min_records: int) -> set[Pair]:
    """Return the pairs of workload and GPU type that need no profile run.

    They have an operator's table (which covers every type), basic times, or enough records of runs
    within one server.
    """
    counts = Counter((r.workload, r.gpu_type) for r in knowledge.records if r.nodes == 1)
    return (
        {(workload, gpu_type) for workload in knowledge.tables for gpu_type in types}
        | {(theory.workload, theory.gpu_type) for theory in knowledge.theory}
        | {pair for pair, count in counts.items() if count >= min_records}
    )


def profiling(
    snapshot: Snapshot,
    view: ClusterView,
    runs: Sequence[ProfileRun],
    measured_pairs: set[Pair],
    settings: ProfilingSettings,
    queue: Sequence[Job] = (),
    shortages: Collection[Shortage] = (),
) -> Profiling:
    """Plan the profile runs: follow the open ones and begin new ones.

    ``runs``: the open and the recent runs. ``queue``: the jobs of the snapshot in the plan's order;
    runs leave the job at its head the GPUs that it needs. The order of the snapshot's jobs and of
    ``runs`` does not matter.
    """
    reading = view.reading
    now = _follow_runs(runs, view, measured_pairs, settings, shortages)
    busy = {run.job: run for run in now.values() if not run.closed}
    recent = [r for r in now.values() if reading.now - (r.end or r.begin) < settings.retry_seconds]
    failures = {run.job: run for run in _in_order(recent) if run.failure and run.closed}
    remaining = _hide_profiled(snapshot, busy.keys())
    new_runs: list[ProfileRun] = []
    if settings.enabled:
        failed_pairs = {(run.workload, run.gpu_type) for run in recent if run.failure and run.ran}
        running = {(run.workload, run.gpu_type) for run in busy.values()}
        candidates = [
            candidate
            for candidate in view.candidates(remaining, settings)
            if candidate.id not in failures
        ]
        quota = _quota(snapshot, view, busy.values(), settings)
        new_runs = runs_to_begin(
            remaining, candidates, measured_pairs | failed_pairs | running, quota, queue
        )
    steps = [
        *_vacated_later(busy.values(), view.jobs, reading.now),
        *_put_back(reading.jobs, view.records),
        *(_start(run, settings) for run in new_runs),
    ]
    on_nodes = {job.id for job in reading.jobs if job.state in OCCUPYING_STATES}
    old = {(run.job, run.begin): run for run in runs}
    updates = [run for key, run in now.items() if run != old.get(key)]
    return Profiling(
        snapshot=_with_new_runs(remaining, new_runs),
        updates=tuple(_in_order([*updates, *new_runs])),
        steps=tuple(sorted(steps, key=lambda step: job_order(step.job))),
        staying=frozenset(busy.keys() & on_nodes - {step.job for step in steps}),
        failures=failures,
        unmeasurable=view.unmeasurable(snapshot, measured_pairs, settings)
        if settings.enabled
        else {},
    )


def _follow_runs(
    runs: Sequence[ProfileRun],
    view: ClusterView,
    measured_pairs: set[Pair],
    settings: ProfilingSettings,
    shortages: Collection[Shortage],
) -> dict[tuple[JobId, float], ProfileRun]:
    """Update ``runs``, and those that only Slurm knows, with this reading; by job and begin."""
    return {
        (run.job, run.begin): run
        if run.closed
        else short_of_memory(
            follow_run(
                _with_current_workload(run, view.records),
                view.jobs.get(run.job),
                measured_pairs,
                view.reading,
                settings,
            ),
            view.user_of(run.job),
            shortages,
        )
        for run in [*runs, *adopted_runs(runs, view.reading, view.records)]
    }


def _quota(
    snapshot: Snapshot, view: ClusterView, busy: Iterable[ProfileRun], settings: ProfilingSettings
) -> RunQuota:
    """Return what new runs may take in addition to the ``busy`` ones."""
    types = {node.name: node.gpu_type for node in view.reading.nodes}
    quota = RunQuota(settings, snapshot.nodes, types)
    for run in busy:
        quota.count(run.gpu_type, view.user_of(run.job))
    return quota


def _with_current_workload(run: ProfileRun, records: Mapping[JobId, JobRecord]) -> ProfileRun:
    """Update the workload's name, which the job's first report may have changed."""
    record = records.get(run.job)
    return replace(run, workload=record.workload) if record else run


def _in_order(runs: Iterable[ProfileRun]) -> list[ProfileRun]:
    return sorted(runs, key=lambda run: (run.begin, job_order(run.job)))


def _vacated_later(
    busy: Iterable[ProfileRun], jobs: Mapping[JobId, JobReading], now: float
) -> list[Step]:
    """Return steps for jobs that exceed their time, or have measured enough and do not leave."""
    steps = []
    for run in busy:
        job = jobs.get(run.job)
        must_leave = run.failure or (run.end is not None and now - run.end >= LEAVE_SECONDS)
        if must_leave and job is not None and job.state is SlurmState.RUNNING:
            steps.append(Step(run.job, StepKind.PREEMPT, current=job.allocation, profiling=True))
    return steps


def _put_back(jobs: Iterable[JobReading], records: Mapping[JobId, JobRecord]) -> list[Step]:
    """Requeue jobs that ended on one GPU, which says nothing about the GPUs that they asked for."""
    return [
        Step(job.id, StepKind.REQUEUE, profiling=True)
        for job in jobs
        if job.ended_in_profile and job.id in records
    ]


def _start(run: ProfileRun, settings: ProfilingSettings) -> Step:
    target = Allocation.of({run.node: 1})
    return Step(
        run.job, StepKind.START, target=target, profiling=True, iterations=settings.iterations
    )


def _hide_profiled(snapshot: Snapshot, busy: Collection[JobId]) -> Snapshot:
    """Take jobs in a profile run out of the snapshot's queue; they keep what they hold."""
    if not busy:
        return snapshot
    jobs = tuple(
        replace(job, state=JobState.PROFILING) if job.id in busy else job for job in snapshot.jobs
    )
    return replace(snapshot, jobs=jobs)


def _with_new_runs(snapshot: Snapshot, new_runs: Sequence[ProfileRun]) -> Snapshot:
    """Return the snapshot as if ``new_runs`` were running.

    A node's ``idle`` is negative if competing jobs have to make room.
    """
    if not new_runs:
        return snapshot
    allocations = {run.job: Allocation.of({run.node: 1}) for run in new_runs}
    return with_allocations(_hide_profiled(snapshot, allocations.keys()), allocations)
