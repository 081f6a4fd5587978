"""The life cycle of a profile run, updated by each reading."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from hopsd.core.queue.history import OCCUPYING_STATES
from hopsd.core.submission.unseen import why_unseen
from hopsd.model.history import JobRecord, ProfileRun
from hopsd.model.ids import GpuType, JobId, UserName, WorkloadName
from hopsd.model.knowledge import Shortage
from hopsd.model.reading import JobReading, Reading, SlurmState
from hopsd.model.step import OutcomeStatus, StepKind, StepOutcome

Pair = tuple[WorkloadName, GpuType]


@dataclass(frozen=True, slots=True)
class ProfilingSettings:
    """Which workloads get profile runs, and limits on the runs.

    ``new_workloads``: every new workload gets runs, as in section 3.2 of the paper; otherwise only
    those whose jobs ask for it (``profile=yes``), since a script may not tolerate a second start.

    ``iterations``: the maximum that one run measures. ``time_limit_seconds``: the limit of one run,
    from its start. ``retry_seconds``: the wait before a failed run is repeated. ``share``: the
    share of each type's GPUs that runs may take at any one time, at least one GPU.
    ``runs_per_user``: the maximum number of a user's runs at any one time.
    """

    enabled: bool = False
    new_workloads: bool = True
    iterations: int = 20
    time_limit_seconds: float = 120.0
    retry_seconds: float = 86400.0
    share: float = 1.0
    runs_per_user: int = 65_536


def run_summary(run: ProfileRun) -> str:
    """Describe the outcome of a run in a sentence."""
    if run.failure:
        return f"its profile run on {run.gpu_type} ({run.node}) failed: {run.failure}"
    seconds = (run.end or run.begin) - run.begin
    return f"{run.workload} was measured on {run.gpu_type} ({run.node}) within {seconds:.0f} s"


def unstarted_runs(
    runs: Iterable[ProfileRun], outcomes: Iterable[StepOutcome]
) -> tuple[ProfileRun, ...]:
    """Close the runs that Slurm could not start: their jobs compete without a profile."""
    errors = {
        outcome.step.job: outcome.error
        for outcome in outcomes
        if outcome.step.kind is StepKind.START
        and outcome.step.profiling
        and outcome.status is OutcomeStatus.FAILED
    }
    return tuple(
        replace(run, end=run.begin, closed=True, failure=f"it could not start: {errors[run.job]}")
        if run.job in errors and not run.closed
        else run
        for run in runs
    )


def adopted_runs(
    runs: Sequence[ProfileRun], reading: Reading, records: Mapping[JobId, JobRecord]
) -> list[ProfileRun]:
    """Return profile runs that Slurm has but the store does not know, as after a restore."""
    types = {node.name: node.gpu_type for node in reading.nodes}
    open_jobs = {run.job for run in runs if not run.closed}
    return [
        ProfileRun(job.id, job.restarts, records[job.id].workload, types[node], node, job.start)
        for job in reading.jobs
        if job.profiling and job.state is SlurmState.RUNNING and job.id not in open_jobs
        for node in job.allocation.nodes[:1]
        if node in types
    ]


def follow_run(
    run: ProfileRun,
    job: JobReading | None,
    measured_pairs: set[Pair],
    reading: Reading,
    settings: ProfilingSettings,
) -> ProfileRun:
    """Update an open run with this reading.

    A run that ended without results stays open for one more reading: its report may have arrived
    between the last reading of reports and this reading of jobs.
    """
    end = reading.now if run.end is None else run.end
    is_measured = (run.workload, run.gpu_type) in measured_pairs
    if (
        job is not None
        and job.state in OCCUPYING_STATES
        and job.profiling
        and job.restarts == run.run
    ):
        limit = settings.time_limit_seconds
        is_late = reading.now - max(job.start, run.begin) > limit
        if is_late and not is_measured:
            text = f"it had not measured enough after {limit:g} s"
            return replace(run, failure=_with_cause(text, job))
        return replace(run, end=end) if is_measured else run
    if job is not None and job.state is SlurmState.PENDING and job.restarts <= run.run:
        return replace(run, end=run.begin, closed=True)  # it never began
    node_lost = not any(node.name == run.node and node.usable for node in reading.nodes)
    if is_measured:
        return replace(run, end=end, closed=True, failure="")
    if node_lost:
        return replace(run, end=run.begin, closed=True)
    failure = run.failure or _cause_of_end(job)
    return replace(run, end=end, closed=run.end is not None, failure=failure)


def short_of_memory(run: ProfileRun, user: UserName, shortages: Iterable[Shortage]) -> ProfileRun:
    """State in the run's failure that the GPU's memory was too small, if that is why it failed."""
    short = any(
        (s.user, s.workload, s.gpu_type) == (user, run.workload, run.gpu_type) and s.at >= run.begin
        for s in shortages
    )
    if not (run.failure and short):
        return run
    return replace(run, failure=f"it ran out of the memory of one {run.gpu_type}")


def _with_cause(failure: str, job: JobReading) -> str:
    cause = why_unseen(job.options)
    return f"{failure}; {cause}" if cause else failure


def _cause_of_end(job: JobReading | None) -> str:
    if job is None:
        return "it ended before it had measured enough"
    if not job.state.finished or not (job.exit_code or job.exit_signal):
        return _with_cause("it ended before it had measured enough", job)
    ending = f"signal {job.exit_signal}" if job.exit_signal else f"exit code {job.exit_code}"
    return f"it ended with {ending} before it had measured enough"
