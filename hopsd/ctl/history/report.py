"""`hopsctl report`: use of the GPUs, waiting times, and the same before hops."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean, median, quantiles
from typing import Any

import click

from hopsd.ctl.address import Address
from hopsd.ctl.admin.past_runs import PATIENCE
from hopsd.ctl.daemon_client import ask_daemon, socket_option
from hopsd.ctl.history.page import page, racks_sentence, slurm_sentence
from hopsd.ctl.history.period import period, since_option, until_option
from hopsd.ctl.render import show, show_json, table
from hopsd.ctl.study.progress_bar import ProgressBar
from hopsd.ctl.terminal import complain, say
from hopsd.errors import SlurmError
from hopsd.model.devices import is_cpu
from hopsd.model.history import LoggedJob
from hopsd.model.ids import GpuType
from hopsd.model.reason import clock, duration
from hopsd.slurm.accounting.jobs import read_logged
from hopsd.slurm.command import SlurmCommands
from hopsd.store.figures import SLOWDOWN_SECONDS

Document = dict[str, Any]

ADDING_UP = 250.0
"""Timeout in seconds: hopsd runs four queries, each of at most a minute."""

USES = ("hops", "plain", "fragmented", "idle", "down")
_FIGURES = (*USES, "rack_fragmented")
MAX_ROWS = 20
"""Maximum users and accounts in a table: those with the most GPU hours. JSON and CSV have all."""

_TITLES = {"size": "by size (GPUs, up to)", "user": "by user", "account": "by account"}
_BEFORE = ("jobs", "gpu_hours", "mean_wait", "median_wait", "p90_wait", "mean_slowdown")


@click.command()
@socket_option
@since_option
@until_option
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Write a self-contained page.")  # fmt: skip
@click.option("--csv", "as_csv", is_flag=True, help="One line for each figure.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.option("--no-accounting", is_flag=True, help="Do not ask sacct for the time before hops.")
def report(
    path: Address,
    since: float,
    until: float | None,
    html: Path | None,
    as_csv: bool,
    as_json: bool,
    no_accounting: bool,
) -> None:
    """Show how the GPUs were used in a period, and who waited how long.

    This covers GPU hours used, idle, fragmented and lost to restarts; waits by size, user and
    account; latency ratios; the cost of profile runs; and, if Slurm's accounting has it, an equally
    long period before hops.

    \b
    Examples:
      hopsctl report --since 30d
      hopsctl report --since 2026-01-01 --until 2026-02-01 --html january.html
    """
    start, end = period(since, until)
    with ProgressBar("hopsd adds up"):
        answer = ask_daemon(path, "report", timeout_seconds=ADDING_UP, since=start, until=end)
    document = sum_up(answer)
    with ProgressBar("Slurm's accounting"):
        document["before"] = None if no_accounting else _figures_before_hops(document)
    if html is not None:
        html.write_text(page(document), encoding="utf-8")
        (complain if as_json or as_csv else say)(f"written: {html}")
    if as_json:
        show_json(document)
    elif as_csv:
        _write_csv(document)
    elif html is None:
        _show(document)


def sum_up(answer: Document) -> Document:
    """Add GPU hours in total and by type to hopsd's answer; times are in seconds.

    CPUs that serve as devices have their own type and do not count in ``all``.
    """
    use = answer["use"]
    if use is not None:
        use = [{**row, **{name: row[name] / 3600.0 for name in _FIGURES}} for row in use]
    types = sorted({row["gpu_type"] for row in use or ()})
    by_type = {
        kind: {name: sum(row[name] for row in use if row["gpu_type"] == kind) for name in _FIGURES}
        for kind in types
    }
    gpus = [hours for kind, hours in by_type.items() if not is_cpu(GpuType(kind))]
    totals = {name: sum(hours[name] for hours in gpus) for name in _FIGURES}
    waits = [{**row, "gpu_hours": row["gpu_seconds"] / 3600.0} for row in answer["waits"]]
    return {
        **{key: answer[key] for key in ("since", "until", "user", "first", "shadow")},
        "slurm_jobs": answer.get("slurm_jobs", 0),
        "gpu_hours": None if use is None else {"all": totals, **by_type},
        "over_time": use,
        "jobs": {
            "training_hours": answer["spent"]["training"] / 3600.0,
            "restarting_hours": answer["spent"]["restarting"] / 3600.0,
            "restarts": answer["spent"]["restarts"],
            "profiling_hours": answer["spent"]["profiling"] / 3600.0,
            "profile_runs": answer["spent"]["profile_runs"],
        },
        "waits": {
            group: [row for row in waits if row["by"] == group]
            for group in ("all", "hops", *_TITLES)
        },
        "ratios": {"up_to": answer["ranges"], "jobs": answer["ratios"]},
    }


def _figures_before_hops(document: Document) -> Document | str:
    """Read sacct's figures of an equally long period before hops' first job; or say why not."""
    first = document["first"]
    if first is None:
        return "hops has scheduled no job yet"
    begin = max(first, document["since"])
    start = first - max(0.0, document["until"] - begin)
    if start >= first:
        return "hops had no job yet"
    try:
        logged_jobs = read_logged(SlurmCommands(PATIENCE), start, first)
    except SlurmError as error:
        return f"cannot read Slurm's accounting of that time: {error}"
    user = document["user"]
    ended_jobs = [
        job for job in logged_jobs if _ended_within(job, start, first) and user in (None, job.user)
    ]
    if any(job.ours for job in ended_jobs):
        return "hops ran jobs then that it has since deleted (database.retention_days)"
    if not ended_jobs:
        return "Slurm's accounting has no GPU job from before hops"
    return {"since": start, "until": first, **before_figures(ended_jobs)}


def _ended_within(job: LoggedJob, start: float, end: float) -> bool:
    last = job.runs[-1].end if job.runs else None
    return last is not None and start <= last < end and not job.waits


def before_figures(jobs: Sequence[LoggedJob]) -> dict[str, float]:
    """Compute for finished jobs the figures that hopsd reports for its own jobs."""
    waits, slowdowns = [], []
    for job in jobs:
        run = job.run_seconds
        wait = max(0.0, (job.runs[-1].end or 0.0) - job.since - run)
        waits.append(wait)
        slowdowns.append(max(1.0, (wait + run) / max(run, SLOWDOWN_SECONDS)))
    return {
        "jobs": len(jobs),
        "gpu_hours": sum(job.gpu_seconds for job in jobs) / 3600.0,
        "mean_wait": fmean(waits),
        "median_wait": median(waits),
        "p90_wait": quantiles(waits, n=10, method="inclusive")[8] if len(waits) > 1 else waits[0],
        "mean_slowdown": fmean(slowdowns),
    }


def _show(document: Document) -> None:
    restriction = f", only jobs of {document['user']}" if document["user"] is not None else ""
    say(f"{clock(document['since'])} to {clock(document['until'])}{restriction}\n")
    if document["shadow"]:
        say("hops is a shadow: Slurm ran these jobs.\n")
    elif document["slurm_jobs"]:
        say(f"{slurm_sentence(document['slurm_jobs'])}\n")
    if document["gpu_hours"] is None:
        say("You may not see how the cluster's GPUs were used (PrivateData).\n")
    else:
        show(table("GPU hours", ["type", *USES, "idle %"], _use_rows(document["gpu_hours"])))
        if sentence := racks_sentence(document["gpu_hours"]["all"]):
            say(f"{sentence}\n")
    say(spent_sentence(document["jobs"]) + "\n")
    columns = ["", "jobs", "GPU h", "wait", "median", "p90"]
    columns += ["wait/run", "p90 wait/run", "max wait/run"]
    rows = [_wait_row("all", row) for row in document["waits"]["all"]]
    if not rows:
        say("No job ended.")
    for group, title in _TITLES.items():
        group_rows = document["waits"][group]
        rows = [*rows, *(_wait_row(row["name"] or "none", row) for row in group_rows[:MAX_ROWS])]
        if group_rows:
            show(table(f"Waiting {title}", columns, rows))
        if len(group_rows) > MAX_ROWS:
            say(f"and {len(group_rows) - MAX_ROWS} more\n")
        rows = []
    show(table("Latency ratios", ["up to", *map(str, document["ratios"]["up_to"]), "more"],
               [("jobs", *document["ratios"]["jobs"])]))  # fmt: skip
    _show_before(document)


def _use_rows(hours: Document) -> Iterable[tuple[object, ...]]:
    for kind in [*(name for name in hours if name != "all"), "all"]:
        use = hours[kind]
        usable_hours = sum(use[name] for name in USES if name != "down")
        idle = use["fragmented"] + use["idle"]
        yield (
            kind,
            *(use[name] for name in USES),
            100.0 * idle / usable_hours if usable_hours else None,
        )


def spent_sentence(jobs: Document) -> str:
    """Say in a sentence where the jobs' GPU hours went."""
    return (
        f"Of the jobs' GPU hours {jobs['training_hours']:,.1f} went into training"
        f" ({jobs['restarting_hours']:,.1f} of them into {jobs['restarts']:,} restarts) and"
        f" {jobs['profiling_hours']:,.1f} into {jobs['profile_runs']:,} profile runs."
    )


def _wait_row(name: str, row: Document) -> tuple[object, ...]:
    waits = (duration(row[key]) for key in ("mean_wait", "median_wait", "p90_wait"))
    ratios = (row[key] for key in ("mean_ratio", "p90_ratio", "max_ratio"))
    return (name, row["jobs"], row["gpu_hours"], *waits, *ratios)


def _show_before(document: Document) -> None:
    earlier_figures, present_figures = document["before"], document["waits"]["hops"]
    if isinstance(earlier_figures, str):
        say(f"Before hops: {earlier_figures}.")
    elif earlier_figures is not None and present_figures:
        columns = ["", "jobs", "GPU h", "wait", "median", "p90", "slowdown"]
        rows = [
            (name, row["jobs"], row["gpu_hours"],
             *(duration(row[key]) for key in ("mean_wait", "median_wait", "p90_wait")),
             row["mean_slowdown"])
            for name, row in (("before", earlier_figures), ("with hops", present_figures[0]))
        ]  # fmt: skip
        show(
            table(f"Before hops, from {clock(earlier_figures['since'])} on (sacct)", columns, rows)
        )


def _write_csv(document: Document) -> None:
    """Write one line ``table,row,figure,value`` for each figure."""
    writer = csv.writer(sys.stdout)
    writer.writerow(["table", "row", "figure", "value"])
    for kind, use in (document["gpu_hours"] or {}).items():
        writer.writerows(["gpu_hours", kind, name, value] for name, value in use.items())
    for row in document["over_time"] or ():
        row_name = f"{row['gpu_type']} {datetime.fromtimestamp(row['hour'], UTC):%Y-%m-%dT%H:%MZ}"
        writer.writerows(["over_time", row_name, name, row[name]] for name in _FIGURES)
    writer.writerows(["jobs", "", name, value] for name, value in document["jobs"].items())
    for group, rows in document["waits"].items():
        for row in rows:
            figures = ((key, row[key]) for key in row if key not in ("by", "name"))
            writer.writerows([f"waits_{group}", row["name"], *figure] for figure in figures)
    limits = [*document["ratios"]["up_to"], "more"]
    for limit, jobs in zip(limits, document["ratios"]["jobs"], strict=True):
        writer.writerow(["latency_ratios", limit, "jobs", jobs])
    if isinstance(document["before"], dict):
        writer.writerows(["before", "", key, document["before"][key]] for key in _BEFORE)
