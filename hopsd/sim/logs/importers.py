"""Imports workloads: Philly's trace, ``sacct`` of a real cluster, or a plain CSV.

Such logs record GPUs and run times, not models. Each job gets its logged GPU count as its only
requirement; all share one workload that is equally fast on every GPU type, so that a job takes as
long as it did. These workloads test load and fairness, but hardly placement.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from hopsd.errors import FormatError
from hopsd.model.ids import JobId, NodeName, UserName, WorkloadName
from hopsd.model.job import ThroughputTable
from hopsd.model.scenario import Cluster, Workload, WorkloadJob

LOGGED_WORKLOAD = WorkloadName("logged")
RATE = 1.0
"""Samples per second per GPU of logged jobs, so a sample is one GPU-second."""

MAX_GPUS = 65_536


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One job of a log. ``submit`` is a time on any clock, ``seconds`` the run time."""

    id: str
    user: str
    submit: float
    gpus: int
    seconds: float
    reqs: tuple[int, ...] = ()


def philly(text: str) -> list[LogEntry]:
    """Read columns ``submit_s,num_gpus,duration,cluster`` (Jeon et al., 2019; the virtual cluster
    stands for the user).
    """
    columns = {"submit_s", "num_gpus", "duration", "cluster"}
    return [
        LogEntry(
            id=str(number),
            user=row["cluster"] or "philly",
            submit=_number(row, "submit_s", line),
            gpus=_integer(row, "num_gpus", line),
            seconds=_number(row, "duration", line),
        )
        for number, (line, row) in enumerate(_rows(text, ",", columns), 1)
    ]


def plain(text: str) -> list[LogEntry]:
    """Read columns ``id,user,submit,gpus,seconds`` and optionally ``reqs``, such as ``1 2 4``."""
    jobs = []
    for line, row in _rows(text, ",", {"id", "user", "submit", "gpus", "seconds"}):
        try:
            reqs = tuple(sorted({int(r) for r in (row.get("reqs") or "").split()}))
        except ValueError:
            reqs = (0,)
        if not all(1 <= r <= MAX_GPUS for r in reqs):
            raise FormatError(
                f"line {line}: reqs {row['reqs']!r}; give counts from 1 to"
                f" {MAX_GPUS:,} such as '1 2 4'"
            )
        jobs.append(
            LogEntry(
                id=row["id"],
                user=row["user"],
                submit=_number(row, "submit", line),
                gpus=_integer(row, "gpus", line),
                seconds=_number(row, "seconds", line),
                reqs=reqs,
            )
        )
    return jobs


def sacct(text: str) -> list[LogEntry]:
    """Read ``sacct -aXP -o JobIDRaw,User,Submit,Start,End,AllocTRES,State`` with its header.

    Jobs without GPUs, an end or a run time are left out.
    """
    columns = {"JobIDRaw", "User", "Submit", "Start", "End", "AllocTRES"}
    jobs = []
    for line, row in _rows(text, "|", columns):
        gpus = _tres_gpus(row["AllocTRES"], line)
        start, end = _moment(row["Start"], line), _moment(row["End"], line)
        submit = _moment(row["Submit"], line)
        if gpus and submit is not None and start is not None and end is not None and end > start:
            jobs.append(LogEntry(row["JobIDRaw"], row["User"], submit, gpus, end - start))
    return jobs


IMPORTERS: dict[str, Callable[[str], list[LogEntry]]] = {
    "philly": philly,
    "csv": plain,
    "sacct": sacct,
}


def workload_of(jobs: Iterable[LogEntry], cluster: Cluster) -> Workload:
    """Make a workload for ``cluster`` from a log; the first job is submitted at 0.

    A logged job is assumed to be as fast on several servers as on one, since logs do not say.
    """
    usable_jobs = [job for job in jobs if job.gpus > 0 and job.seconds > 0]
    if not usable_jobs:
        raise FormatError("the log has no job with GPUs and a run time")
    _check(usable_jobs)
    start = min(job.submit for job in usable_jobs)
    types = sorted({server.gpu_type for server in cluster.servers})
    table = ThroughputTable({1: RATE}, {2: RATE}, source="log")
    specs = tuple(
        WorkloadJob(
            id=JobId(job.id),
            user=UserName(job.user or "unknown"),
            submit=job.submit - start,
            workload=LOGGED_WORKLOAD,
            samples=job.gpus * job.seconds * RATE,
            reqs=job.reqs or (job.gpus,),
        )
        for job in usable_jobs
    )
    factors: dict[WorkloadName, dict[NodeName, float]] = {}
    return Workload({LOGGED_WORKLOAD: dict.fromkeys(types, table)}, specs, factors)


def _check(jobs: Iterable[LogEntry]) -> None:
    names = Counter(job.id for job in jobs)
    duplicates = [name for name, times in names.items() if times > 1]
    if duplicates:
        raise FormatError(
            f"job {duplicates[0]!r} is in the log twice; give each job an id of its own"
        )
    if "" in names:
        raise FormatError("a job has no id; give each job an id of its own")


def _integer(row: dict[str, str], column: str, line: int) -> int:
    value = _number(row, column, line)
    if value != int(value) or value > MAX_GPUS:
        raise FormatError(
            f"line {line}: {column} {row[column]!r}; give a whole number from 0 to {MAX_GPUS:,}"
        )
    return int(value)


def _rows(
    text: str, delimiter: str, required_columns: set[str]
) -> Iterable[tuple[int, dict[str, str]]]:
    """Iterate over the rows, each with its line number."""
    reader = csv.DictReader(io.StringIO(text), delimiter=delimiter)
    try:
        columns = list(reader.fieldnames or [])
        for wrong, names in (
            ("missing", required_columns - set(columns)),
            ("there twice", {name for name in columns if name and columns.count(name) > 1}),
        ):
            if names:
                raise FormatError(f"line 1: columns {', '.join(sorted(names))} are {wrong}")
        for row in reader:
            if any(row[column] is None for column in required_columns):
                raise FormatError(f"line {reader.line_num}: too few columns")
            if None in row:
                raise FormatError(f"line {reader.line_num}: more columns than line 1 names")
            yield reader.line_num, row
    except csv.Error as error:
        raise FormatError(f"line {reader.line_num}: {error}") from None


def _number(row: dict[str, str], column: str, line: int) -> float:
    try:
        value = float(row[column])
    except ValueError:
        value = -1.0
    if not 0.0 <= value < float("inf"):
        raise FormatError(f"line {line}: {column} {row[column]!r}; give a number, 0 or more")
    return value


def _moment(text: str, line: int) -> float | None:
    """Seconds since the epoch; None for Slurm's ``Unknown`` and ``None``."""
    if text in {"Unknown", "None", ""}:
        return None
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise FormatError(
            f"line {line}: {text!r}; give a time such as 2026-01-31T12:00:00"
        ) from None


def _tres_gpus(text: str, line: int) -> int:
    """Count the GPUs in a TRES string such as ``cpu=8,gres/gpu:a100=2,gres/gpu=2``."""
    amounts = dict(part.split("=", 1) for part in text.split(",") if "=" in part)
    by_type = [n for name, n in amounts.items() if name.startswith("gres/gpu:")]
    counts = [amounts["gres/gpu"]] if "gres/gpu" in amounts else by_type
    if not all(count.isdecimal() for count in counts):
        raise FormatError(f"line {line}: AllocTRES {text!r}; give one such as 'cpu=8,gres/gpu=2'")
    return sum(map(int, counts))
