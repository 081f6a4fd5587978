"""Workloads from elsewhere: Philly's trace, ``sacct`` of a real cluster, a plain CSV.

Such logs tell GPUs and run times, not models. A job becomes one whose single requirement is
what it had; all share one workload that is equally fast on every GPU type, so that a job
takes as long as it did. They test load and fairness, hardly placement.
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

LOGGED = WorkloadName("logged")
RATE = 1.0
"""Samples per second per GPU of logged jobs: a sample is a GPU second."""

GPUS_MAX = 65_536
SPAN_MAX = 10 * 366 * 86400.0
"""Seconds from the first submission to the last, or of one run: ten years, a typing error beyond
that, and a simulation without end."""


@dataclass(frozen=True, slots=True)
class Logged:
    """One job of a log. ``submit`` on any clock; ``seconds`` of run time."""

    id: str
    user: str
    submit: float
    gpus: int
    seconds: float
    reqs: tuple[int, ...] = ()


def philly(text: str) -> list[Logged]:
    """Columns ``submit_s,num_gpus,duration,cluster`` (Jeon et al., 2019; the virtual cluster
    stands for the user).
    """
    return [
        Logged(
            id=str(number),
            user=row["cluster"] or "philly",
            submit=_number(row, "submit_s", number),
            gpus=_whole(row, "num_gpus", number),
            seconds=_number(row, "duration", number),
        )
        for number, row in _rows(text, ",", {"submit_s", "num_gpus", "duration", "cluster"})
    ]


def plain(text: str) -> list[Logged]:
    """Columns ``id,user,submit,gpus,seconds`` and optionally ``reqs`` such as ``1 2 4``."""
    jobs = []
    for number, row in _rows(text, ",", {"id", "user", "submit", "gpus", "seconds"}):
        try:
            reqs = tuple(sorted({int(r) for r in (row.get("reqs") or "").split()}))
        except ValueError:
            reqs = (0,)
        if not all(1 <= r <= GPUS_MAX for r in reqs):
            raise FormatError(
                f"line {number + 1}: reqs {row['reqs']!r}; accepted are counts from 1 to"
                f" {GPUS_MAX:,} such as '1 2 4'"
            )
        jobs.append(
            Logged(
                id=row["id"],
                user=row["user"],
                submit=_number(row, "submit", number),
                gpus=_whole(row, "gpus", number),
                seconds=_number(row, "seconds", number),
                reqs=reqs,
            )
        )
    return jobs


def sacct(text: str) -> list[Logged]:
    """``sacct -aXP -o JobIDRaw,User,Submit,Start,End,AllocTRES,State`` with its header.

    Jobs without GPUs, without an end or of no length are left out.
    """
    columns = {"JobIDRaw", "User", "Submit", "Start", "End", "AllocTRES"}
    jobs = []
    for number, row in _rows(text, "|", columns):
        gpus = _tres_gpus(row["AllocTRES"], number)
        start, end = _moment(row["Start"], number), _moment(row["End"], number)
        submit = _moment(row["Submit"], number)
        if gpus and submit is not None and start is not None and end is not None and end > start:
            jobs.append(Logged(row["JobIDRaw"], row["User"], submit, gpus, end - start))
    return jobs


IMPORTERS: dict[str, Callable[[str], list[Logged]]] = {
    "philly": philly,
    "csv": plain,
    "sacct": sacct,
}


def workload_of(jobs: Iterable[Logged], cluster: Cluster) -> Workload:
    """Jobs of a log on a cluster, the first submitted at 0.

    Spread over servers a logged job is as fast as in one: nobody knows better.
    """
    known = [job for job in jobs if job.gpus > 0 and job.seconds > 0]
    if not known:
        raise FormatError("the log has no job with GPUs and a run time")
    _check(known)
    start = min(job.submit for job in known)
    types = sorted({server.gpu_type for server in cluster.servers})
    table = ThroughputTable({1: RATE}, {2: RATE}, source="log")
    specs = tuple(
        WorkloadJob(
            id=JobId(job.id),
            user=UserName(job.user or "unknown"),
            submit=job.submit - start,
            workload=LOGGED,
            samples=job.gpus * job.seconds * RATE,
            reqs=job.reqs or (job.gpus,),
        )
        for job in known
    )
    factors: dict[WorkloadName, dict[NodeName, float]] = {}
    return Workload({LOGGED: dict.fromkeys(types, table)}, specs, factors)


def _check(jobs: Iterable[Logged]) -> None:
    jobs = list(jobs)
    names = Counter(job.id for job in jobs)
    twice = [name for name, times in names.items() if times > 1]
    if twice:
        raise FormatError(f"job {twice[0]!r} is in the log twice; accepted are ids of their own")
    if "" in names:
        raise FormatError("a job has no id; accepted are ids of their own")
    first = min(job.submit for job in jobs)
    for job in jobs:
        if max(job.submit - first, job.seconds) > SPAN_MAX:
            raise FormatError(f"job {job.id!r}: accepted are logs and runs of up to ten years")


def _whole(row: dict[str, str], column: str, number: int) -> int:
    value = _number(row, column, number)
    if value != int(value) or value > GPUS_MAX:
        raise FormatError(
            f"line {number + 1}: {column} {row[column]!r}; accepted is a whole number from 0 to"
            f" {GPUS_MAX:,}"
        )
    return int(value)


def _rows(text: str, delimiter: str, needed: set[str]) -> Iterable[tuple[int, dict[str, str]]]:
    """Rows with their number from 1."""
    reader = csv.DictReader(io.StringIO(text), delimiter=delimiter)
    missing = needed - set(reader.fieldnames or [])
    if missing:
        raise FormatError(f"line 1: columns {', '.join(sorted(missing))} are missing")
    for number, row in enumerate(reader, 1):
        if any(row[column] is None for column in needed):
            raise FormatError(f"line {number + 1}: too few columns")
        yield number, row


def _number(row: dict[str, str], column: str, number: int) -> float:
    try:
        value = float(row[column])
    except ValueError:
        value = -1.0
    if not 0.0 <= value < float("inf"):
        raise FormatError(
            f"line {number + 1}: {column} {row[column]!r}; accepted is a number, 0 or more"
        )
    return value


def _moment(text: str, number: int) -> float | None:
    """Seconds since the epoch; None for Slurm's ``Unknown`` and ``None``."""
    if text in {"Unknown", "None", ""}:
        return None
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise FormatError(
            f"line {number + 1}: {text!r} is no time such as 2026-01-31T12:00:00"
        ) from None


def _tres_gpus(text: str, number: int) -> int:
    """GPUs in a trackable resources string such as ``cpu=8,gres/gpu:a100=2,gres/gpu=2``."""
    amounts = dict(part.split("=", 1) for part in text.split(",") if "=" in part)
    try:
        if "gres/gpu" in amounts:
            return int(amounts["gres/gpu"])
        return sum(int(n) for name, n in amounts.items() if name.startswith("gres/gpu:"))
    except ValueError:
        raise FormatError(
            f"line {number + 1}: AllocTRES {text!r}; accepted is such as 'cpu=8,gres/gpu=2'"
        ) from None
