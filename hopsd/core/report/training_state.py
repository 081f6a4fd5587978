"""What reports show about a job besides its speed: its program and its progress."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from hopsd.core.report.reports import Report
from hopsd.model import bounds
from hopsd.model.ids import JobId, NodeName
from hopsd.model.reading import JobReading, SlurmState

MAX_RESTART_SECONDS = 3600.0

SHOWN_SECONDS = 60.0
"""A run whose loops show its length has done so this long after its first step."""

USED_SECONDS = 180.0
"""A job that has not used a GPU for this long after its first step does not use it at all."""

Run = tuple[JobId, int]
"""A job and Slurm's restart count."""


def programs_of(reports: Iterable[Report]) -> dict[Run, str]:
    """Return the program of each run that reported any: of several, the longest training one."""
    train_seconds: dict[tuple[bool, str, Run], float] = defaultdict(float)
    for report in reports:
        if report.program:
            trains = report.phases is not None and not report.phases.inference
            train_seconds[trains, report.program, (report.job, report.run)] += report.timed_seconds
    sorted_runs = sorted(train_seconds.items(), key=lambda item: (item[0][0], item[1], item[0][1]))
    return {run: program for (_, program, run), _ in sorted_runs}


def seen_saving(reports: Iterable[Report]) -> dict[JobId, bool]:
    """Return whether each job that trains has saved in any of its runs.

    Profile runs do not count: their work is discarded, perhaps with what they saved.
    """
    by_job: dict[JobId, bool] = {}
    for report in reports:
        if report.iterations and not report.profiling:
            by_job[report.job] = (
                by_job.get(report.job, False) or report.saved_iterations is not None
            )
    return by_job


def communication_timed(reports: Iterable[Report]) -> dict[JobId, bool]:
    """Return whether each job that trains on several ranks reports communication times.

    The newest run that reports it decides; jobs without such a run are omitted.
    """
    return _by_newest_run(
        (
            (report, report.communication_timed)
            for report in reports
            if report.phases is not None and not report.phases.inference
        ),
        all,
    )


def keeps_steps(reports: Iterable[Report]) -> dict[JobId, bool]:
    """Return whether each training's steps have the same number of samples on any number of GPUs.

    The newest run that reports it decides; jobs without such a run are omitted.
    """
    return _by_newest_run(
        (
            (report, report.keeps_steps)
            for report in reports
            if report.phases is not None and not report.phases.inference
        ),
        any,
    )


def time_known(reports: Iterable[Report]) -> dict[JobId, bool]:
    """Return whether all processes of each job show how long an iteration takes.

    The newest run that reports it decides; jobs without such a run are omitted.
    """
    return _by_newest_run(((report, report.time_known) for report in reports), all)


def _by_newest_run(
    flags: Iterable[tuple[Report, bool | None]], combine: Callable[[Iterable[bool]], bool]
) -> dict[JobId, bool]:
    """Combine, for each job, the flags of the processes of its newest run with any flags."""
    runs: dict[Run, list[bool]] = {}
    for report, flag in flags:
        if flag is not None:
            runs.setdefault((report.job, report.run), []).append(flag)
    return {job: combine(run_flags) for (job, _), run_flags in sorted(runs.items())}


def answers_signal(reports: Iterable[Report], job: JobReading) -> dict[JobId, bool]:
    """Return whether all ranks of the job's newest training handle the signal its script asks for.

    They can then save before they are stopped. The job is omitted while no run has trained.
    """
    runs: dict[int, bool] = {}
    for report in reports:
        if report.iterations and not report.profiling:
            handles = job.options.signal in report.handled_signals
            runs[report.run] = handles and runs.get(report.run, True)
    return {job.id: runs[max(runs)]} if runs else {}


def gpus_used(reports: Iterable[Report], job: JobReading) -> dict[JobId, int]:
    """Return the number of GPUs on which a running job's present run computes.

    The job is omitted until its processes have trained for USED_SECONDS, and if they do not report
    their GPUs.
    """
    present = [r for r in reports if r.run == job.restarts and not r.final]
    gpus = sum(report.gpus or 0 for report in present)
    last = max((report.at for report in present), default=0.0)
    old = all(last - report.first_step >= USED_SECONDS for report in present)
    running = job.state is SlurmState.RUNNING
    return {job.id: gpus} if gpus and old and running else {}


def gpus_taken(reports: Iterable[Report], job: JobReading) -> dict[JobId, int]:
    """Return the number of a running job's GPUs on which the driver sees any process.

    The job is omitted unless its reports cover all of its GPUs.
    """
    nodes: dict[NodeName, tuple[int, int]] = {}
    for report in reports:
        if report.run == job.restarts and not report.final and report.visible_gpus is not None:
            counts = report.visible_gpus, report.taken_gpus or 0
            nodes[report.node] = max(nodes.get(report.node, counts), counts)
    visible = {node: gpus for node, (gpus, _) in nodes.items()}
    whole = visible == job.allocation.as_dict() and job.state is SlurmState.RUNNING
    return {job.id: sum(gpus for _, gpus in nodes.values())} if whole and visible else {}


def out_of_memory(reports: Iterable[Report], job: JobReading) -> list[Report]:
    """Return the out-of-memory reports of ``job`` from runs that did not complete.

    Others are ignored, since some programs try batch sizes until one fits, each in a separate
    process.
    """
    unsuccessful = job.state.finished and job.state is not SlurmState.COMPLETED
    return [
        report
        for report in reports
        if report.out_of_memory and (unsuccessful or report.run < job.restarts)
    ]


def samples_done(reports: Iterable[Report], jobs: Mapping[JobId, JobReading]) -> dict[JobId, float]:
    """Return samples by job: all of its present run, and what earlier runs saved before they ended.

    One rank saves for all. Runs of a job that was never seen to save count in full: it may save in
    a way that hops cannot observe. Profile runs do not count: their work is discarded.
    """
    runs: dict[JobId, dict[int, list[Report]]] = defaultdict(lambda: defaultdict(list))
    for report in reports:
        runs[report.job][report.run].append(report)
    return {job: _retained_samples(job_runs, jobs[job].restarts) for job, job_runs in runs.items()}


def samples_planned(
    reports: Iterable[Report], jobs: Mapping[JobId, JobReading]
) -> dict[JobId, float | None]:
    """Return total samples by job, as the loops of its newest run show them.

    A job is omitted if its loops do not show them yet, and None if they no longer do. A profile run
    counts if there is no other run: its loops are as long as the job's.
    """
    runs: dict[tuple[JobId, bool, int], list[Report]] = defaultdict(list)
    for report in reports:
        runs[report.job, not report.profiling, report.run].append(report)
    result: dict[JobId, float | None] = {}
    samples = samples_done((report for run in runs.values() for report in run), jobs)
    newest = {job: (job, trains, run) for job, trains, run in sorted(runs)}
    for job, trains, number in newest.values():
        run = runs[job, trains, number]
        ratios = [
            r.planned_iterations / r.iterations
            for r in run
            if r.planned_iterations is not None and r.iterations
        ]
        if ratios:
            present = sum(report.samples for report in run)
            result[job] = (samples[job] if trains else present) + (max(ratios) - 1.0) * present
        elif trains and any(r.at - r.first_step >= SHOWN_SECONDS for r in run):
            result[job] = None
    return {j: s for j, s in result.items() if s is None or bounds.SAMPLES.holds(s)}


def _retained_samples(runs: Mapping[int, Sequence[Report]], present: int) -> float:
    saves = any(report.saved_iterations is not None for run in runs.values() for report in run)
    total = 0.0
    for run, members in runs.items():
        share = 1.0
        if saves and run < present:
            share = max((r.saved_iterations or 0) / max(1, r.iterations) for r in members)
        total += share * sum(r.samples for r in members if not r.profiling)
    return total


def restart_seconds(
    reports: Iterable[Report], jobs: Mapping[JobId, JobReading]
) -> dict[JobId, float]:
    """Return the restart times of running jobs, by their slowest rank.

    Jobs are omitted if clocks differ too much.
    """
    result: dict[JobId, float] = {}
    for report in reports:
        job = jobs[report.job]
        present = job.state is SlurmState.RUNNING and report.run == job.restarts
        if present and report.iterations and job.start > 0:
            seconds = report.first_step - job.start
            if 0.0 < seconds <= MAX_RESTART_SECONDS:
                result[job.id] = max(seconds, result.get(job.id, 0.0))
    return result
