"""Reads from Slurm's accounting (sacct) which GPU jobs there were, and when each of them ran.

Job names are not requested, so no field contains a user's text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from hopsd.core.submission.options_text import MARK
from hopsd.model import bounds
from hopsd.model.devices import is_cpu
from hopsd.model.history import ANY_TYPE, LoggedJob, Stretch
from hopsd.model.ids import GpuType, JobId, UserName
from hopsd.slurm.accounting.local_time import epoch_seconds
from hopsd.slurm.command import SlurmCommands

_FIELDS = (
    "JobID",
    "User",
    "Account",
    "Submit",
    "Eligible",
    "Start",
    "End",
    "AllocTRES",
    "ReqTRES",
    "TimelimitRaw",
    "State",
    "AdminComment",
)

_ID = re.compile(r"[0-9]{1,18}(?:_[0-9]{1,9})?")

_RERUN_STATES = frozenset({"REQUEUED", "REQUEUE_HOLD", "NODE_FAIL", "PREEMPTED", "RESIZING"})
"""States of a run after which the same job may have another."""

_TYPED_GRES = re.compile(r"(?:^|,)gres/gpu:([^=,]+)=")


def read_logged(
    commands: SlurmCommands, since: float, until: float, partitions: Sequence[str] = ()
) -> list[LoggedJob]:
    """Return the GPU jobs that waited or ran in these partitions between two times (epoch seconds).

    Empty ``partitions`` means all of them.
    sacct shows each user what slurm.conf's PrivateData lets them see.

    Raises:
        SlurmError: sacct is missing, or slurmdbd does not answer.
    """
    # sacct does not accept times with a time zone; it uses this process's.
    period = (datetime.fromtimestamp(moment, UTC).astimezone() for moment in (since, until))
    start, end = (f"{moment:%Y-%m-%dT%H:%M:%S}" for moment in period)
    output = commands.run(
        "sacct", "--allusers", "--allocations", "--duplicates", "--noheader", "--parsable2",
        f"--starttime={start}", f"--endtime={end}", f"--format={','.join(_FIELDS)}",
        *([f"--partition={','.join(partitions)}"] if partitions else []),
    )  # fmt: skip
    return parse_logged(output.splitlines())


def parse_logged(lines: Iterable[str]) -> list[LoggedJob]:
    """Parse sacct's lines; jobs without GPUs and lines that are not jobs are left out.

    A requeued job has a line for each run, each submitted when the one before ended.
    """
    runs: dict[JobId, _Run] = {}
    logged_jobs: list[LoggedJob] = []
    for run in sorted(filter(None, map(_run, lines)), key=lambda run: run.job.since):
        before = runs.pop(run.job.id, None)
        if before is None:
            runs[run.job.id] = run
        elif before.may_restart:
            runs[run.job.id] = run.after(before)
        else:  # Slurm's job ids have wrapped around
            logged_jobs.append(before.job)
            runs[run.job.id] = run
    return [*logged_jobs, *(run.job for run in runs.values())]


@dataclass(frozen=True, slots=True)
class _Run:
    """A line of sacct: a job with at most one run. ``may_restart``: whether it may run again."""

    job: LoggedJob
    may_restart: bool

    def after(self, before: _Run) -> _Run:
        job = replace(
            self.job,
            since=before.job.since,
            runs=(*before.job.runs, *self.job.runs),
            gpus=before.job.gpus,
            ours=self.job.ours or before.job.ours,
        )
        return replace(self, job=job)


def _run(line: str) -> _Run | None:
    values = line.split("|", len(_FIELDS) - 1)
    if len(values) == len(_FIELDS):
        with suppress(ValueError, OverflowError, OSError):
            return _parse_run(*values)
    return None


def _parse_run(
    job: str,
    user: str,
    account: str,
    submit: str,
    eligible: str,
    start: str,
    end: str,
    allocated_tres: str,
    requested_tres: str,
    limit: str,
    state: str,
    comment: str,
) -> _Run | None:
    gpus = _gpus(allocated_tres if "gres/gpu" in allocated_tres else requested_tres)
    if not (_ID.fullmatch(job) and user and bounds.GPUS.holds(gpus)):
        return None
    word = state.partition(" ")[0]  # CANCELLED by 1000
    submit_time, start_time, end_time = map(epoch_seconds, (submit, start, end))
    if submit_time is None:
        return None
    # hops holds its jobs, so Slurm counts them as eligible only from their release on.
    is_hops = MARK in comment
    since = submit_time if is_hops else max(submit_time, epoch_seconds(eligible) or submit_time)
    ran = (
        start_time is not None
        and _gpus(allocated_tres)
        and (end_time is None or end_time > start_time)
    )
    run = (Stretch(start_time, end_time, gpus),) if ran and start_time is not None else ()
    logged_job = LoggedJob(
        id=JobId(job),
        user=UserName(user),
        account=account,
        since=min(since, start_time) if start_time is not None and run else since,
        gpus=gpus,
        runs=run,
        waits=word in ("PENDING", "REQUEUED"),
        gpu_type=_type(requested_tres),
        time_limit_seconds=int(limit) * 60.0 if limit.isdecimal() else None,
        ours=is_hops,
    )
    return _Run(logged_job, word in _RERUN_STATES)


def _gpus(tres: str) -> int:
    """Count the GPUs, without CPUs counted as GPUs where the accounting distinguishes types."""
    amounts = dict(part.split("=", 1) for part in tres.split(",") if "=" in part)
    typed_gpus = {
        GpuType(name.removeprefix("gres/gpu:")): int(n)
        for name, n in amounts.items()
        if name.startswith("gres/gpu:")
    }
    all_gpus = int(amounts.get("gres/gpu", sum(typed_gpus.values())))
    return all_gpus - sum(n for kind, n in typed_gpus.items() if is_cpu(kind))


def _type(requested_tres: str) -> GpuType:
    """The one GPU type that the job asks for, if the accounting records types."""
    types = set(_TYPED_GRES.findall(requested_tres))
    return GpuType(types.pop()) if len(types) == 1 else ANY_TYPE
