"""`hopsctl shadow report`: what hops would have done beside what Slurm did."""

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

from hopsd.ctl.daemon import ask_daemon, socket_option
from hopsd.ctl.history.period import When, period, until_option
from hopsd.ctl.history.report import ADDING_UP
from hopsd.ctl.render import show, show_json, table
from hopsd.ctl.shell import completion as complete
from hopsd.ctl.study.progress import Bar
from hopsd.ctl.study.simulate import admit, show_results
from hopsd.ctl.study.what_if import MOST, study, told_first
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
from hopsd.sim.study import Result, figures

Document = dict[str, Any]

SECONDS_APART = 60.0
"""A start earlier or later by less is the same: hopsd looks only so often."""


@click.group()
def shadow() -> None:
    """What hops would do on a cluster that Slurm schedules (port = "shadow")."""


@shadow.command()
@socket_option
@click.option("--since", type=When(), default="7d", show_default=True, metavar="WHEN",
              help="12h, 7d, 4w, or a date such as 2026-01-31.")  # fmt: skip
@until_option
@click.option("--policy", "policies", multiple=True, metavar="NAME",
              shell_complete=complete.policies,
              help="Besides hopsd's own; `slurm` without this.")  # fmt: skip
@click.option("--jobs", "most", type=click.IntRange(min=1, max=100_000), default=MOST,
              show_default=True, help="At most so many, the newest ones.")  # fmt: skip
@click.option("--shown", type=click.IntRange(min=0), default=10, show_default=True,
              help="Jobs in each of the tables of earlier and later starts.")  # fmt: skip
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=Path("shadow"),
              show_default=True, help="The folder for report.html and tables.")  # fmt: skip
@click.option("--resume", is_flag=True, help="Go on where an interrupted run stopped.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of tables.")
@click.option("--csv", "as_csv", is_flag=True, help="A line for each job, with both starts.")
def report(
    path: Path,
    since: float,
    until: float | None,
    policies: Sequence[str],
    most: int,
    shown: int,
    out: Path,
    resume: bool,
    as_json: bool,
    as_csv: bool,
) -> None:
    """Compare what Slurm did with what hops would have done with the same jobs.

    A shadow starts nothing, so what it plans now rests on what Slurm did before. Waits are
    therefore compared by playing the diary's jobs through from the period's start on.

    \b
    Examples:
      hopsctl shadow report --since 7d
      hopsctl shadow report --since 2w --policy slurm --policy hops+ --csv
    """
    for policy in policies:
        get(policy)
    start, end = period(since, until)
    with Bar("diary", "jobs") as bar:
        told = _told(path, start, end, most, bar)
    cluster = _cluster(told)
    jobs = [logged_job(row) for row in told["jobs"]]
    if not jobs:
        raise InputError('the diary has no job of that time; hopsd writes it with port = "shadow"')
    played = replay(jobs, cluster, start, end, most)
    played = played.only(admit(cluster, played.workload, told["round_seconds"]))
    knows = KnowledgeSettings(Knows.MEASURED)
    assumed = [
        *assumptions(played, of="hopsd saw them in Slurm's queue"),
        "Jobs that began and ended between two looks of hopsd are missing.",
        f"Policies know: {knows}. A restart costs {told['restart_seconds']:g} s.",
    ]
    (complain if as_json or as_csv else say)(told_first(played, cluster, assumed))
    names = list(dict.fromkeys([told["policy"], *(policies or ("slurm",))]))
    results, files = study(
        names, played, cluster, knows, out, round_seconds=told["round_seconds"],
        restart_seconds=told["restart_seconds"], resume=resume,
    )  # fmt: skip
    compared = starts(played, results[0], results[1])
    then = at_the_time(told["jobs"])
    if as_json:
        show_json({"start": played.start, "end": played.end, "assumes": assumed,
                   "policies": {result.policy: figures(result) for result in results},
                   "starts": [row.document() for row in compared], "at_the_time": then,
                   **files})  # fmt: skip
    elif as_csv:
        _write_csv(compared)
    else:
        show_results(results, f"Policies knew: {knows}")
        _show(compared, names[0], shown)
        say(_sentence(then))
        say(f"Distributions, and every server over time: {out / 'report.html'}")


def _told(path: Path, since: float, until: float, most: int, bar: Bar) -> Document:
    """hopsd's answer, with the diary's newest jobs asked for by the page, so that hopsd never
    holds more of them than that.
    """
    jobs: list[Document] = []
    while True:
        page = min(most - len(jobs), MAX_DIARY_ROWS)
        before = [jobs[0]["submit"], jobs[0]["id"]] if jobs else None
        told: Document = ask_daemon(path, "diary", timeout_seconds=ADDING_UP, since=since,
                                    until=until, most=page, before=before)  # fmt: skip
        last = told["jobs"][-1:]
        if before and last and [last[0]["submit"], last[0]["id"]] >= before:
            raise InputError(
                f"hopsd is older than this hopsctl and tells at most {MAX_DIARY_ROWS} jobs:"
                f" restart it, or ask for --jobs {MAX_DIARY_ROWS}"
            )
        jobs[:0] = told["jobs"]
        bar.at(len(jobs), most)
        if len(told["jobs"]) < page or len(jobs) >= most:
            return {**told, "jobs": jobs}


@dataclass(frozen=True, slots=True)
class Started:
    """When a job began to run, in epoch seconds: in reality and in the simulation, None: never."""

    job: LoggedJob
    really: float
    simulated: float | None

    @property
    def sooner(self) -> float:
        """Seconds by which the simulation is earlier; minus infinity if it never starts it."""
        return float("-inf") if self.simulated is None else self.really - self.simulated

    def document(self) -> Document:
        return {"job": self.job.id, "user": self.job.user, "gpus": self.job.gpus,
                "wanted": self.job.since, "slurm": self.really, "hops": self.simulated}  # fmt: skip


def starts(played: Replay, really: Result, simulated: Result) -> list[Started]:
    """Both starts of each job, in the order in which they came."""
    return [
        Started(
            job,
            played.start + (was.first_start or 0.0),
            None if sim.first_start is None else played.start + sim.first_start,
        )
        for job, was, sim in zip(played.jobs, really.outcomes, simulated.outcomes, strict=True)
    ]


def logged_job(row: Mapping[str, Any]) -> LoggedJob:
    """A job of the diary. It wanted to run from its first run on, less the time that it waited."""
    runs = tuple(Stretch(start, end, gpus) for start, end, gpus in row["runs"])
    between = sum(b.start - a.end for a, b in pairwise(runs) if a.end is not None)
    since = runs[0].start - max(0.0, row["wait"] - between) if runs else row["submit"]
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
    """How much earlier hops' own plans had a place for jobs than Slurm started them."""
    ahead = [
        row["runs"][0][0] - row["planned"]
        for row in jobs
        if row["runs"] and row["planned"] is not None
    ]
    earlier = [seconds for seconds in ahead if seconds >= SECONDS_APART]
    return {
        "started": sum(bool(row["runs"]) for row in jobs),
        "earlier": len(earlier),
        "median_seconds": median(earlier) if earlier else 0.0,
    }


def _cluster(told: Document) -> Cluster:
    servers = tuple(
        Server(NodeName(node["name"]), GpuType(node["gpu_type"]), node["gpus"])
        for node in told["nodes"]
        if node["gpus"]
    )
    cluster = without_cpus(Cluster(servers))
    if not cluster.servers:
        raise InputError("hopsd has not seen a node with GPUs yet; ask again in a minute")
    return cluster


def _show(compared: Sequence[Started], policy: str, shown: int) -> None:
    earlier = sorted((row for row in compared if row.sooner >= SECONDS_APART),
                     key=lambda row: -row.sooner)  # fmt: skip
    later = sorted((row for row in compared if row.sooner <= -SECONDS_APART),
                   key=lambda row: row.sooner)  # fmt: skip
    same = len(compared) - len(earlier) - len(later)
    say(
        f"Under {policy} {count_of(len(earlier), 'jobs')} would have started earlier,"
        f" {len(later)} later, {same} within a minute of when they did.\n"
    )
    columns = ["job", "user", "GPUs", "came", "Slurm", policy, "by"]
    for title, rows in (("Earlier", earlier[:shown]), ("Later", later[:shown])):
        if rows:
            show(table(title, columns, [
                (row.job.id, row.job.user, row.job.gpus, clock(row.job.since), clock(row.really),
                 clock(row.simulated), "never" if row.simulated is None
                 else duration(abs(row.sooner)))
                for row in rows
            ]))  # fmt: skip


def _sentence(then: Document) -> str:
    return (
        f"At the time, hops had a place for {then['earlier']:,} of {then['started']:,} started jobs"
        f" earlier than Slurm started them, by {duration(then['median_seconds'])} in the median."
        " These times do not add up: several jobs may have had the same place."
    )


def _write_csv(compared: Sequence[Started]) -> None:
    writer = csv.DictWriter(sys.stdout, ["job", "user", "gpus", "wanted", "slurm", "hops"])
    writer.writeheader()
    writer.writerows(row.document() for row in compared)
