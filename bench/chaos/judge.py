"""Check the invariants against the jobs' own records, Slurm's completion log and the store.

A finding carries its evidence. If slurmctld caused it by losing its state, the finding is explained
and does not count as a violation.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from pathlib import Path

from ClusterShell.NodeSet import NodeSet

from bench.chaos.slurm_log import SlurmLog
from bench.chaos.world import SubmittedJob, World
from hopsd.core.submission.comment import parse
from hopsd.model.ids import NodeName
from hopsd.model.journal import RecordedAllocation
from hopsd.store.postgres import PostgresStore

BEAT_SECONDS = 0.5
TOLERANCE_SECONDS = 2.0
"""Slurm's times are whole seconds, and on a busy machine a job starts to write a moment later."""
WASTE_SHARE = 1 / 3
WASTE_SECONDS = 100.0
STATE_SECONDS = 3.0
"""Margin around a loss of slurmctld's state: events at its edge may or may not be lost."""


Log = dict[str, list[tuple[str, float]]]
"""End states and times of runs according to Slurm, by token."""


@dataclass(slots=True)
class Run:
    """One run as the job recorded it; ``last`` is the time of its last sign of life."""

    token: str
    job: str
    restart: int
    start: float
    last: float
    nodes: tuple[str, ...]
    gpus: dict[str, tuple[int, ...]] = field(default_factory=dict)
    end: float | None = None
    saved_at: float | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """A broken rule (``kind``); ``explanation`` is Slurm's part in it, "" if hops is to blame."""

    kind: str
    token: str
    text: str
    explanation: str = ""


def read_runs(records: Path) -> dict[str, list[Run]]:
    """Runs by token, ordered by start."""
    runs_by_token: dict[str, list[Run]] = defaultdict(list)
    for path in records.glob("*.run"):
        token = path.name.partition(".")[0]
        lines = [line.split() for line in path.read_text(errors="replace").splitlines()]
        if not lines or len(lines[0]) != 5 or lines[0][0] != "start":
            continue  # killed before it wrote a whole line
        _, start, job, restart, nodes = lines[0]
        beat = path.with_suffix(".beat")
        run = Run(token, job, int(restart), float(start), float(start), tuple(NodeSet(nodes)))
        run.last = max(
            run.start, path.stat().st_mtime, beat.stat().st_mtime if beat.exists() else 0.0
        )
        for kind, *fields in lines[1:]:
            if kind == "gpus" and len(fields) == 2 and fields[1] != "none":
                run.gpus[fields[0]] = tuple(_indices(fields[1]))
            elif kind == "end":
                run.end = run.last = float(fields[0])
            elif kind == "saved":
                run.saved_at = run.last = float(fields[0])
        runs_by_token[token].append(run)
    for runs in runs_by_token.values():
        runs.sort(key=lambda run: run.start)
    return runs_by_token


def _indices(text: str) -> list[int]:
    parts = (part.partition("-") for part in text.split(",") if part)
    return [index for low, _, high in parts for index in range(int(low), int(high or low) + 1)]


def judge(world: World) -> list[Finding]:
    """All findings except those made during the faults."""
    with PostgresStore(world.dsn) as store:
        return judge_records(world, store.placements())


def judge_records(world: World, placements_stored: Iterable[RecordedAllocation]) -> list[Finding]:
    """Check the records of jobs and of Slurm against the store's placements."""
    runs = read_runs(world.records)
    log = _read_completions(world.folder / "completed")
    slurm = SlurmLog.read(world.folder / "log" / "slurmctld.log")
    placements: dict[str, list[RecordedAllocation]] = defaultdict(list)
    for placement in placements_stored:
        placements[placement.job].append(placement)
    findings: list[Finding] = []
    for token, job in world.jobs.items():
        job_runs = runs.get(token, [])
        findings += never_ended(world, job, job_runs, log, slurm)
        findings += _twice(world, job, job_runs)
        findings += ran_again(world, job, job_runs, slurm)
        findings += counts(world, job, job_runs, placements, slurm)
        findings += _started_while_held(world, job, job_runs)
    findings += _shared_gpus(world, [run for job_runs in runs.values() for run in job_runs])
    return findings + _waste(*redone(world))


def redone(world: World) -> tuple[float, float]:
    """Seconds of lost work, and of all work."""
    lost_seconds = total = 0.0
    for runs in read_runs(world.records).values():
        for run in runs:
            total += run.last - run.start
            lost_seconds += 0.0 if run.end or run.saved_at else run.last - run.start
    return lost_seconds, total


def _waste(lost_seconds: float, total: float) -> list[Finding]:
    """Check that the work done twice stays within its bound."""
    if lost_seconds <= max(WASTE_SHARE * total, WASTE_SECONDS):
        return []
    return [Finding("work done twice", "", f"{lost_seconds:.0f} of {total:.0f} s")]


def _read_completions(path: Path) -> Log:
    completions: Log = defaultdict(list)
    if path.exists():
        for line in path.read_text(errors="replace").splitlines():
            words = dict(re.findall(r"(\w+)=(\S*)", line))
            with suppress(KeyError, ValueError):
                end_time = datetime.fromisoformat(words["EndTime"]).astimezone().timestamp()
                completions[words["Name"]].append((words["JobState"], end_time))
    return completions


def _lost_state(world: World, *times: float) -> str:
    """Name the loss of slurmctld's state that covers one of ``times``; "" if none does."""
    for since, until in world.forgot:
        if any(
            since - STATE_SECONDS <= event_time <= until + STATE_SECONDS for event_time in times
        ):
            return f"slurmctld lost its state of {since:.0f} to {until:.0f}"
    return ""


def never_ended(
    world: World, job: SubmittedJob, runs: Sequence[Run], log: Log, slurm: SlurmLog
) -> list[Finding]:
    """Check that every job ends."""
    has_ended = any(run.end for run in runs) or job.is_cancelled
    completions = log.get(job.token, [])
    states = [state for state, _ in completions]
    if has_ended or "COMPLETED" in states or "CANCELLED" in states:
        return []
    times = [run.last for run in runs]
    times += [
        end_time for state, end_time in completions[-1:] if state == "PENDING"
    ]  # its last requeue
    if slurm.dropped_job(job.id, job.submit_time):
        times.append(job.submit_time)
    explanation = _lost_state(world, *times)
    text = f"job {job.id} ({job.kind}) has {len(runs)} runs, none to its end; Slurm's log: {states}"
    return [Finding("lost", job.token, text, explanation)]


def _twice(world: World, job: SubmittedJob, runs: Sequence[Run]) -> list[Finding]:
    return [
        Finding(
            "two runs at once",
            job.token,
            f"job {job.id}: {previous_run.nodes} until {previous_run.last:.1f},"
            f" {later.nodes} from {later.start:.1f}",
            _lost_state(world, previous_run.start, previous_run.last, later.start),
        )
        for previous_run, later in pairwise(runs)
        if later.start < previous_run.last - BEAT_SECONDS
    ]


def ran_again(
    world: World, job: SubmittedJob, runs: Sequence[Run], slurm: SlurmLog
) -> list[Finding]:
    """Check that no finished job runs again. slurmctld is to blame if it never recorded the end, or
    has since restarted with an older state.
    """
    findings = []
    for previous_run, later in pairwise(runs):
        if previous_run.end is None:
            continue
        was_completed = slurm.ended_well(job.id, previous_run.end - BEAT_SECONDS, later.start)
        explanation = ""
        if any(
            t == job.token and previous_run.start <= requeue_time <= later.start
            for t, requeue_time in world.requeues
        ):
            explanation = "its owner requeued it"
        elif was_completed is None:
            explanation = "slurmctld never learnt of that end"
        elif slurm.has_restart(was_completed, later.start):
            explanation = _lost_state(world, was_completed)
        text = f"job {job.id} ended at {previous_run.end:.1f} and ran again at {later.start:.1f}"
        findings.append(Finding("finished job again", job.token, text, explanation))
    return findings


def counts(
    world: World,
    job: SubmittedJob,
    runs: Sequence[Run],
    placements: dict[str, list[RecordedAllocation]],
    slurm: SlurmLog,
) -> list[Finding]:
    """Check that each run has an accepted GPU count and is in the store as it ran, except runs that
    plain Slurm started after hops gave the job back.
    """
    accepted_counts = parse(f"hops:reqs={job.reqs}", range_values=8).reqs
    findings = []
    for run in runs:
        gpus = {node: len(ids) for node, ids in run.gpus.items()}
        whole = set(gpus) == set(run.nodes)
        if whole and sum(gpus.values()) not in accepted_counts:
            text = f"job {job.id} got {gpus}, asked for {job.reqs}"
            findings.append(Finding("wrong count", job.token, text, _lost_state(world, run.start)))
        placements_there = [
            p for p in placements.get(run.job, ()) if set(p.allocation.nodes) == set(run.nodes)
        ]
        recorded_counts = [
            p
            for p in placements_there
            if all(p.allocation.on(NodeName(n)) == count for n, count in gpus.items())
        ]
        if not recorded_counts:
            seconds = run.last - run.start
            text = f"job {job.id} ran {seconds:.1f} s at {run.start:.1f} on {gpus or run.nodes}"
            says = [(round(p.start), p.allocation.as_dict()) for p in placements.get(run.job, ())]
            held_at = slurm.held_at(run.job, run.start)  # slurmctld may have lost the hold, too
            explanation = _lost_state(world, run.start, *([] if held_at is None else [held_at]))
            if slurm.given_back(run.job, run.start):
                explanation = "plain Slurm started it: it had been given back"
            findings.append(
                Finding("not in the store", job.token, f"{text}; it says {says}", explanation)
            )
    return findings


def _started_while_held(world: World, job: SubmittedJob, runs: Sequence[Run]) -> list[Finding]:
    """Check that no job starts while a person holds it."""
    return [
        Finding(
            "hold lost",
            job.token,
            f"job {job.id} held from {hold.since:.1f} to {hold.until:.1f} began at {run.start:.1f}",
            _lost_state(world, hold.since, run.start),
        )
        for hold in world.holds
        for run in runs
        if hold.token == job.token and hold.since + TOLERANCE_SECONDS < run.start < hold.until
    ]


def _shared_gpus(world: World, runs: Iterable[Run]) -> list[Finding]:
    """Check that no GPU runs two jobs at once."""
    by_gpu: dict[tuple[str, int], list[Run]] = defaultdict(list)
    for run in runs:
        for node, ids in run.gpus.items():
            for index in ids:
                by_gpu[node, index].append(run)
    findings = {}
    for (node, index), users in by_gpu.items():
        users.sort(key=lambda run: run.start)
        for previous_run, later in pairwise(users):
            if previous_run.token != later.token and later.start < previous_run.last - BEAT_SECONDS:
                text = (
                    f"{node} GPU {index}: job {previous_run.job} until {previous_run.last:.1f},"
                    f" job {later.job} from {later.start:.1f}"
                )
                explanation = _lost_state(world, previous_run.start, previous_run.last, later.start)
                findings[previous_run.token, later.token] = Finding(
                    "GPU given twice", previous_run.token, text, explanation
                )
    return list(findings.values())
