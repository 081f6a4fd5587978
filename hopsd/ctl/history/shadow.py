"""`hopsctl shadow report`: compares what Slurm did with what hops would have done."""

from __future__ import annotations

import csv
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import click

from hopsd.ctl.address import Address
from hopsd.ctl.daemon_client import ask_daemon, socket_option
from hopsd.ctl.history.period import TimeParam, period, until_option
from hopsd.ctl.history.report import ADDING_UP
from hopsd.ctl.render import show, show_json, table
from hopsd.ctl.shell import completion as complete
from hopsd.ctl.study.progress_bar import ProgressBar
from hopsd.ctl.study.simulate import admit, show_results
from hopsd.ctl.study.what_if import MAX_JOBS, study, told_first
from hopsd.ctl.terminal import complain, say
from hopsd.errors import InputError
from hopsd.model.bounds import MAX_DIARY_ROWS
from hopsd.model.devices import without_cpus
from hopsd.model.history import LoggedJob, Stretch
from hopsd.model.ids import GpuType, JobId, NodeName, UserName
from hopsd.model.reason import clock, count_of, duration
from hopsd.model.scenario import Cluster, Server
from hopsd.policies.registry import get
from hopsd.sim.information.knowledge import KnowledgeSettings, Knows
from hopsd.sim.logs.replay import Replay, assumptions, replay
from hopsd.sim.study import PolicyResult, figures

Document = dict[str, Any]

SECONDS_APART = 60.0
"""Starts that differ by less count as equal, since hopsd reads Slurm only at intervals."""


@click.group()
def shadow() -> None:
    """Show what hops would do on a cluster that Slurm schedules (port = "shadow")."""


@shadow.command()
@socket_option
@click.option("--since", type=TimeParam(), default="7d", show_default=True, metavar="WHEN",
              help="12h, 7d, 4w, or a date such as 2026-01-31.")  # fmt: skip
@until_option
@click.option("--policy", "policies", multiple=True, metavar="NAME",
              shell_complete=complete.policies,
              help="A policy to compare with hopsd's; by default `slurm`.")  # fmt: skip
@click.option("--jobs", "max_jobs", type=click.IntRange(min=1, max=100_000), default=MAX_JOBS,
              show_default=True, help="Maximum number of jobs, the newest ones.")  # fmt: skip
@click.option("--shown", "max_rows", type=click.IntRange(min=0), default=10, show_default=True,
              help="Jobs in each of the tables of earlier and later starts.")  # fmt: skip
@click.option("--out", "folder", type=click.Path(file_okay=False, path_type=Path),
              default=Path("shadow"), show_default=True,
              help="The folder for report.html and tables.")  # fmt: skip
@click.option("--resume", is_flag=True, help="Continue an interrupted run.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of tables.")
@click.option("--csv", "as_csv", is_flag=True, help="One line for each job, with both starts.")
def report(
    path: Address,
    since: float,
    until: float | None,
    policies: Sequence[str],
    max_jobs: int,
    max_rows: int,
    folder: Path,
    resume: bool,
    as_json: bool,
    as_csv: bool,
) -> None:
    """Compare what Slurm did with what hops would have done with the same jobs.

    A shadow starts nothing, so its present plans depend on what Slurm did before. Waits are
    therefore compared by simulating the diary's jobs from the period's start on.

    \b
    Examples:
      hopsctl shadow report --since 7d
      hopsctl shadow report --since 2w --policy slurm --policy hops+ --csv
    """
    for policy in policies:
        get(policy)
    start, end = period(since, until)
    with ProgressBar("diary", "jobs") as bar:
        answer = _diary(path, start, end, max_jobs, bar)
    cluster = _cluster(answer)
    jobs = [logged_job(row) for row in answer["jobs"]]
    if not jobs:
        raise InputError('the diary has no job of that time; hopsd writes it with port = "shadow"')
    log_replay = replay(jobs, cluster, start, end, max_jobs)
    log_replay = log_replay.only(admit(cluster, log_replay.workload, answer["round_seconds"]))
    knows = KnowledgeSettings(Knows.MEASURED)
    assumption_texts = [
        *assumptions(log_replay, machine="hopsd saw them in Slurm's queue"),
        "Jobs that started and ended between two readings of hopsd are missing.",
        f"Policies know: {knows}. A restart costs {answer['restart_seconds']:g} s.",
    ]
    (complain if as_json or as_csv else say)(told_first(log_replay, cluster, assumption_texts))
    names = list(dict.fromkeys([answer["policy"], *(policies or ("slurm",))]))
    results, files = study(
        names, log_replay, cluster, knows, folder, round_seconds=answer["round_seconds"],
        restart_seconds=answer["restart_seconds"], resume=resume,
    )  # fmt: skip
    rows = starts(log_replay, results[0], results[1])
    plans_at_the_time = at_the_time(answer["jobs"])
    if as_json:
        show_json({"start": log_replay.start, "end": log_replay.end, "assumes": assumption_texts,
                   "policies": {result.policy: figures(result) for result in results},
                   "starts": [row.document() for row in rows], "at_the_time": plans_at_the_time,
                   **files})  # fmt: skip
    elif as_csv:
        _write_csv(rows)
    else:
        show_results(results, f"Policies knew: {knows}")
        _show(rows, names[0], max_rows)
        say(_sentence(plans_at_the_time))
        say(f"Distributions, and every server over time: {folder / 'report.html'}")


def _diary(path: Address, since: float, until: float, max_jobs: int, bar: ProgressBar) -> Document:
    """Get hopsd's answer with the diary's newest jobs, page by page to bound hopsd's memory."""
    jobs: list[Document] = []
    while True:
        page = min(max_jobs - len(jobs), MAX_DIARY_ROWS)
        cursor = [jobs[0]["submit"], jobs[0]["id"]] if jobs else None
        answer: Document = ask_daemon(path, "diary", timeout_seconds=ADDING_UP, since=since,
                                    until=until, most=page, before=cursor)  # fmt: skip
        last = answer["jobs"][-1:]
        if cursor and last and [last[0]["submit"], last[0]["id"]] >= cursor:
            raise InputError(
                f"hopsd is older than this hopsctl and returns at most {MAX_DIARY_ROWS} jobs:"
                f" restart it, or use --jobs {MAX_DIARY_ROWS}"
            )
        jobs[:0] = answer["jobs"]
        bar.show(len(jobs), max_jobs)
        if len(answer["jobs"]) < page or len(jobs) >= max_jobs:
            return {**answer, "jobs": jobs}


@dataclass(frozen=True, slots=True)
class StartTimes:
    """When a job started, in epoch seconds: really, and in the simulation (None if never)."""

    job: LoggedJob
    actual: float
    sim_start: float | None

    @property
    def lead_seconds(self) -> float:
        """Seconds by which the simulation is earlier; minus infinity if it never starts it."""
        return float("-inf") if self.sim_start is None else self.actual - self.sim_start

    def document(self) -> Document:
        return {"job": self.job.id, "user": self.job.user, "gpus": self.job.gpus,
                "wanted": self.job.since, "slurm": self.actual, "hops": self.sim_start}  # fmt: skip


def starts(log_replay: Replay, really: PolicyResult, hops_result: PolicyResult) -> list[StartTimes]:
    """Return both start times of each job, in order of arrival."""
    return [
        StartTimes(
            job,
            log_replay.start + (actual.first_start or 0.0),
            None if simulation.first_start is None else log_replay.start + simulation.first_start,
        )
        for job, actual, simulation in zip(
            log_replay.jobs, really.outcomes, hops_result.outcomes, strict=True
        )
    ]


def logged_job(row: Mapping[str, Any]) -> LoggedJob:
    """Read a job of the diary, eligible since its first start minus its waiting time."""
    runs = tuple(Stretch(start, end, gpus) for start, end, gpus in row["runs"])
    pauses = sum(b.start - a.end for a, b in pairwise(runs) if a.end is not None)
    since = runs[0].start - max(0.0, row["wait"] - pauses) if runs else row["submit"]
    return LoggedJob(
        JobId(row["id"]),
        UserName(row["user"]),
        row["account"],
        max(row["submit"], since),
        row["gpus"],
        runs,
        gpu_type=GpuType(row["gpu_type"]),
        time_limit_seconds=row["limit"],
    )


def at_the_time(jobs: Sequence[Mapping[str, Any]]) -> Document:
    """Summarise how much earlier than Slurm hops' plans at the time would have started jobs."""
    lead_times = [
        row["runs"][0][0] - row["planned"]
        for row in jobs
        if row["runs"] and row["planned"] is not None
    ]
    earlier_starts = [seconds for seconds in lead_times if seconds >= SECONDS_APART]
    return {
        "started": sum(bool(row["runs"]) for row in jobs),
        "earlier": len(earlier_starts),
        "median_seconds": median(earlier_starts) if earlier_starts else 0.0,
    }


def _cluster(answer: Document) -> Cluster:
    servers = tuple(
        Server(NodeName(node["name"]), GpuType(node["gpu_type"]), node["gpus"])
        for node in answer["nodes"]
        if node["gpus"]
    )
    cluster = without_cpus(Cluster(servers))
    if not cluster.servers:
        raise InputError("hopsd has not read any node with GPUs yet; retry in a minute")
    return cluster


def _show(rows: Sequence[StartTimes], policy: str, max_rows: int) -> None:
    earlier_rows = sorted((row for row in rows if row.lead_seconds >= SECONDS_APART),
                     key=lambda row: -row.lead_seconds)  # fmt: skip
    later = sorted((row for row in rows if row.lead_seconds <= -SECONDS_APART),
                   key=lambda row: row.lead_seconds)  # fmt: skip
    unchanged_count = len(rows) - len(earlier_rows) - len(later)
    say(
        f"Under {policy} {count_of(len(earlier_rows), 'jobs')} would have started earlier,"
        f" {len(later)} later, {unchanged_count} within a minute of when they did.\n"
    )
    columns = ["job", "user", "GPUs", "arrived", "Slurm", policy, "by"]
    for title, table_rows in (("Earlier", earlier_rows[:max_rows]), ("Later", later[:max_rows])):
        if table_rows:
            show(table(title, columns, [
                (row.job.id, row.job.user, row.job.gpus, clock(row.job.since), clock(row.actual),
                 clock(row.sim_start), "never" if row.sim_start is None
                 else duration(abs(row.lead_seconds)))
                for row in table_rows
            ]))  # fmt: skip


def _sentence(document: Document) -> str:
    return (
        f"At the time, hops had a place for {document['earlier']:,} of"
        f" {document['started']:,} started jobs earlier than Slurm started them, by"
        f" {duration(document['median_seconds'])} in the median. These times do not add up:"
        " several jobs may have had the same place."
    )


def _write_csv(rows: Sequence[StartTimes]) -> None:
    writer = csv.DictWriter(sys.stdout, ["job", "user", "gpus", "wanted", "slurm", "hops"])
    writer.writeheader()
    writer.writerows(row.document() for row in rows)
