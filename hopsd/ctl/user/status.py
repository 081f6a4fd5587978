"""`hopsctl status` and `hopsctl explain`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from hopsd.ctl import render
from hopsd.ctl.address import Address
from hopsd.ctl.daemon_client import ask_daemon, socket_option
from hopsd.ctl.options import FiniteRange, TimeOfDay
from hopsd.ctl.render import cell, show, show_json, table
from hopsd.ctl.shell import completion as complete
from hopsd.ctl.terminal import complain, printable, say
from hopsd.ctl.user.terms import TERMS, WAITS
from hopsd.model.devices import is_cpu
from hopsd.model.reading import SlurmState
from hopsd.model.reason import ReasonCode, clock, duration
from hopsd.serve.excerpt import JobSelection, excerpt, totals

Document = dict[str, Any]

MAX_ROWS = 100
"""A longer list is summarised: totals come first, then its first ``FIRST`` rows."""
FIRST = 20

OPTIONAL_PARTS = "totals", "steps", "nodes"
"""Parts that a page leaves out, in this order, if tables would show fewer than ``MIN_ROWS``."""
MIN_ROWS = 3


STATES = (
    *(state.value.lower() for state in SlurmState if not state.finished),
    *(code.value for code in ReasonCode),
)
"""States of jobs in the queue, and codes of what waiting jobs wait for."""


def _known_states(
    _context: click.Context, _option: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    for value in values:
        if value.lower() not in STATES:
            raise click.BadParameter(f"{value!r}; choose from {', '.join(STATES)}")
    return values


@click.command()
@socket_option
@click.option("--watch", is_flag=True, help="Refresh until Ctrl-C.")
@click.option(
    "--every",
    type=FiniteRange(min=0.1, max=3600.0),
    default=2.0,
    show_default=True,
    help="Seconds between refreshes.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the document for programs.")
@click.option(
    "--all",
    "whole",
    is_flag=True,
    help=f"Every row; without it, a terminal shows totals of lists with more than {MAX_ROWS} rows.",
)
@click.option(
    "--user",
    multiple=True,
    shell_complete=complete.users,
    help="Only jobs of this user; may be given several times.",
)
@click.option(
    "--partition",
    multiple=True,
    shell_complete=complete.partitions,
    help="Only jobs submitted to this partition.",
)
@click.option(
    "--state",
    multiple=True,
    callback=_known_states,
    shell_complete=complete.states,
    help="Only jobs in this Slurm state, such as pending, or that wait for this reason, such as"
    " lost_to_others.",
)
def status(
    path: Address,
    watch: bool,
    every: float,
    as_json: bool,
    whole: bool,
    user: tuple[str, ...],
    partition: tuple[str, ...],
    state: tuple[str, ...],
) -> None:
    """Show the cluster, round, RAQLR, running jobs, and waiting jobs with their reasons.

    For a large cluster, a terminal shows totals first, by GPU type, reason and user; a pipe or a
    file gets every row.

    \b
    Examples:
      hopsctl status --user $USER
      hopsctl status --partition gpu --state pending --watch
    """

    whole = whole or as_json or not (watch or sys.stdout.isatty())
    choice: dict[str, Any] = {
        "users": [*user],
        "partitions": [*partition],
        "states": [*state],
        "most": None if whole else MAX_ROWS,
    }

    def fetch() -> Document:
        return ask_status(path, **choice)

    if as_json:
        show_json(fetch())
        return
    if not watch:
        show(view(fetch()))
        return
    with (
        suppress(KeyboardInterrupt),
        Live(page(fetch()), console=render.console, auto_refresh=False) as live,
    ):
        while True:
            time.sleep(every)
            live.update(page(fetch()), refresh=True)


def ask_status(path: Address, ask: Callable[..., Any] = ask_daemon, **choice: Any) -> Document:
    """Get an excerpt of the status document; ``choice`` is as :meth:`JobSelection.parse` reads it.

    With the default ``ask``, the process ends if no daemon answers.
    """
    doc: Document = ask(path, "status", **choice)
    # An older hopsd sends the whole document.
    return doc if "totals" in doc else excerpt(doc, JobSelection.parse(choice))


def page(doc: Document) -> Group:
    """Make a page that fits the console, with as many rows of each table as there is room for."""
    height = render.console.height
    variants = (OPTIONAL_PARTS[:count] for count in range(len(OPTIONAL_PARTS)))
    fitting_omissions = (
        parts for parts in variants if render.lines(view(doc, MIN_ROWS, parts)) <= height
    )
    omission = next(fitting_omissions, OPTIONAL_PARTS)
    limit = render.fitting_limit(partial(view, doc, omitted_parts=omission), height, height)
    return view(doc, max(1, limit), omission)


def view(doc: Document, limit: int | None = None, omitted_parts: Collection[str] = ()) -> Group:
    """Render the status document with ``limit`` rows of each table, all of them if None.

    ``omitted_parts`` are those of ``OPTIONAL_PARTS`` to leave out.
    """
    parts: list[Any] = [headline(doc)]
    if doc["error"]:
        parts.append(Text(printable(doc["error"]), style="bold red"))
    counts = totals_of(doc)
    has_totals = any(counts[kind] > len(doc[kind]) for kind in ("nodes", "running", "waiting"))
    if has_totals and "totals" not in omitted_parts:
        parts += _sums(counts, limit)
    if "nodes" not in omitted_parts:
        parts.append(_nodes(doc, limit))
    parts.append(running(doc, limit))
    parts.append(waiting(doc, limit))
    steps = (doc["round"] or {}).get("steps", [])
    if steps and "steps" not in omitted_parts:
        parts.append(_steps(doc, limit))
    return Group(*parts)


def totals_of(doc: Document) -> Document:
    """Return the totals of a document or an excerpt."""
    return doc["totals"] if "totals" in doc else totals(doc)


def _rows(
    doc: Document, kind: str, rows: Sequence[Any], limit: int | None
) -> tuple[int | None, int]:
    """Return how many of a list's ``rows`` to show, and how many there are."""
    total: int = totals_of(doc)[kind]
    if limit is None and total > len(rows):
        limit = FIRST
    return limit, total


def _sums(counts: Document, limit: int | None) -> list[Any]:
    """Make the tables of totals; CPUs are in the headline."""
    return [
        table(
            "GPUs",
            ["type", "nodes", "GPUs", "idle", "not usable"],
            [
                (kind["gpu_type"], kind["nodes"], kind["gpus"], kind["idle"], unavailable)
                for kind in counts["types"]
                if not is_cpu(kind["gpu_type"])
                for unavailable in [kind["gpus"] - kind["usable"]]
            ],
            limit=limit,
        ),
        table("Waiting for", ["code", "jobs"], [*counts["codes"].items()], limit=limit),
        table(
            "Users",
            ["user", "GPUs", "running", "waiting"],
            [
                (user["user"], user["gpus"], user["running"], user["waiting"])
                for user in counts["users"]
            ],
            limit=FIRST if limit is None else limit,
        ),
    ]


def headline(doc: Document) -> Text:
    """Summarise versions, mode, all and idle GPUs, and the last round."""
    types = totals_of(doc)["types"]
    devices = _totals([kind for kind in types if not is_cpu(kind["gpu_type"])], "GPUs")
    if cpus := [kind for kind in types if is_cpu(kind["gpu_type"])]:
        devices += f", {_totals(cpus, 'CPUs')}"
    raqlr = "-" if doc["raqlr"] is None else f"{doc['raqlr']:.2f}"
    text = (
        f"hops {doc['version']}  {doc['mode']}  Slurm {doc['slurm_version'] or '-'} by"
        f" {doc['port']}  {devices}  RAQLR {raqlr}  {_reading_time(doc['time'])}"
    )
    if doc["round"]:
        remaining = doc["round"]["end"] - doc["time"]
        text += f"\nround ends in {duration(remaining)}; {doc['sentence']}"
    else:
        text += f"\n{doc['sentence']}"
    if doc.get("private"):
        text += f"; not shown to you: others' {', '.join(doc['private'])}"
    rate = doc.get("restarts_per_job_hour")
    if rate is not None:
        text += f"; {rate:.2f} restarts a job-hour, {doc['needless_restarts']} needless"
    if doc["reports_refused"]:
        text += f"; {doc['reports_refused']:,} reports refused"
    return Text("\n".join(map(printable, text.split("\n", 1))))


def _reading_time(read_at: float | None) -> str:
    """Say when Slurm was read for this page, and how long ago: reading may have failed since."""
    if read_at is None:
        return "-"
    return f"{clock(read_at)}, {duration(time.time() - read_at)} ago"


def _totals(types: Sequence[Mapping[str, int]], noun: str) -> str:
    gpus, idle = (sum(kind[key] for kind in types) for key in ("gpus", "idle"))
    return f"{gpus} {noun}, {idle} idle"


def _nodes(doc: Document, limit: int | None) -> Any:
    rows = [
        (
            node["name"],
            node["gpu_type"],
            node["gpus"],
            node["idle"],
            _node_state(node),
            _holders(node),
        )
        for node in doc["nodes"]
    ]
    columns = ["node", "type", "GPUs", "idle", "state", "GPUs held"]
    limit, total = _rows(doc, "nodes", rows, limit)
    return table("Nodes", columns, rows, limit=limit, total=total)


def _node_state(node: Document) -> str:
    state = node["state"] if node["usable"] else f"{node['state']} (not used)"
    return f"{state}; {node['health']}" if node.get("health") else str(state)


def _holders(node: Document) -> dict[str, int]:
    holders = {f"job {job}": gpus for job, gpus in node["jobs"].items()}
    return holders | ({"plain jobs": node["foreign"]} if node.get("foreign") else {})


def running(doc: Document, limit: int | None) -> Any:
    """Make the table of running jobs with ``limit`` rows, all of them if None."""
    rows = [
        (
            job["id"],
            job["user"],
            job["name"],
            job["reqs"],
            job["placement"],
            _activity(job),
            duration(doc["time"] - job["since"]) if job["since"] else "-",
            duration(job["wait_seconds"]),
            job["latency_ratio"],
            job["restarts"],
            _progress(job),
            when(job, doc["time"]),
        )
        for job in doc["running"]
    ]
    columns = ["job", "user", "name", "reqs", "placement", "run", "for", "waited", "wait/run"]
    limit, total = _rows(doc, "running", rows, limit)
    return table(
        "Running",
        [*columns, "restarts", "samples", "ends in"],
        rows,
        wide=("reqs", "run", "wait/run", "restarts", "samples", "ends in"),
        long=("name", "placement"),
        limit=limit,
        total=total,
    )


def _activity(job: Document) -> str:
    if job.get("hung"):
        return "hangs"
    if job.get("idle") and job["idle"]["gpus"] == sum(job["placement"].values()):
        return "idle"
    return "profiling" if job["profiling"] else "training"


def _progress(job: Document) -> str:
    samples = f"{job['samples_done']:,.0f}"
    return f"{samples} of {job['samples']:,.0f}" if job["samples"] else samples


def waiting(doc: Document, limit: int | None) -> Any:
    """Make the table of waiting jobs with ``limit`` rows, all of them if None."""
    rows = [
        (
            job["id"],
            job["user"],
            job["name"],
            job["reqs"],
            duration(job["wait_seconds"]),
            job["priority"],
            job["code"] or job["state"].lower(),
            when(job, doc["time"]),
            job["reason"],
        )
        for job in doc["waiting"]
    ]
    columns = ["job", "user", "name", "reqs", "waited", "priority", "code", "starts in", "why"]
    limit, total = _rows(doc, "waiting", rows, limit)
    return table(
        "Waiting",
        columns,
        rows,
        wide=("priority", "code", "starts in"),
        long=("name",),
        limit=limit,
        total=total,
    )


def _steps(doc: Document, limit: int | None) -> Any:
    rows = [
        (s["job"], s["kind"], s["from"], s["to"], s["status"], s["error"] or None)
        for s in doc["round"]["steps"]
    ]
    columns = ["job", "step", "from", "to", "outcome", "error"]
    limit, total = _rows(doc, "steps", rows, limit)
    return table("Last changes", columns, rows, long=("from", "to"), limit=limit, total=total)


def _show_terms(context: click.Context, _option: click.Parameter, flag: bool) -> None:
    """Print the glossary and exit without asking hopsd."""
    if flag and not context.resilient_parsing:
        show(table("Words", ["word", "meaning"], list(TERMS.items())))
        show(table("A job waits because", ["code", "what you can do"], list(WAITS.items())))
        context.exit()


@click.command()
@click.argument("job", shell_complete=complete.jobs)
@click.option(
    "--terms",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_terms,
    help="Explain the words of status and explain instead of a job.",
)
@socket_option
@click.option("--json", "as_json", is_flag=True, help="Print the document for programs.")
@click.option(
    "--at",
    type=TimeOfDay(),
    help="Where it ran, or why it waited, at that time; without a date, at its last occurrence.",
)
def explain(job: str, path: Address, as_json: bool, at: datetime | None) -> None:
    """Explain why JOB runs where it runs, or why it waits.

    \b
    Examples:
      hopsctl explain 17
      hopsctl explain 17_4 --at 14:30

    Exit codes: 0 done, 1 hops knows no such job, 4 hopsd is not reachable.
    """
    answer = ask_daemon(path, "explain", job=job)
    if as_json:
        show_json(answer)
        return
    row, history = answer["job"], answer["history"]
    record = history["record"]
    if row is None and record is None:
        complain(
            answer.get("unseen") or f"hops knows no job {job}; `hopsctl status` lists its jobs"
        )
        sys.exit(1)
    if at is not None:
        say(explain_moment(job, history, _moment(at, datetime.now(UTC).astimezone())))
        return
    show(*explanation(job, answer))


def explanation(job: str, answer: Document) -> Iterator[RenderableType]:
    """Yield the tables about a job that hopsd knows."""
    row, history = answer["job"], answer["history"]
    facts = _facts(row) if row is not None else _ended_facts(history)
    yield table(f"Job {job}", ["what", "value"], facts)
    placements = [
        (clock(p["start"]), clock(p["end"]), p["nodes"], "yes" if p["profiling"] else "no")
        for p in history["placements"]
    ]
    yield table("Placements", ["from", "to", "GPUs", "profiling"], placements)
    if history["events"]:
        events = [(clock(e["time"]), e["kind"], e["text"]) for e in reversed(history["events"])]
        yield table("What was noticed", ["at", "what", "text"], events)


def _moment(time: datetime, now: datetime) -> float:
    """Convert to seconds since 1970; a time without a date is the last one before ``now``."""
    if time.year == 1900:  # strptime's default year
        time = time.replace(year=now.year, month=now.month, day=now.day)
        if time.astimezone() > now:
            time -= timedelta(days=1)
    return time.astimezone().timestamp()


def explain_moment(job: str, history: Document, time: float) -> str:
    """Say what the job did at that time, as recorded; reasons have their latest wording."""

    def overlaps(begin: float, end: float | None) -> bool:
        return begin <= time and (end is None or time < end)

    record = history["record"]
    if record is not None and time < record["submit"]:
        return f"{clock(time)}: job {job} was submitted later, at {clock(record['submit'])}"
    if record is not None and record["end"] is not None and time >= record["end"]:
        return f"{clock(time)}: job {job} had ended at {clock(record['end'])} ({record['state']})"
    for placement in history["placements"]:
        if overlaps(placement["start"], placement["end"]):
            suffix = ", to be measured" if placement["profiling"] else ""
            since = clock(placement["start"])
            return (
                f"{clock(time)}: job {job} ran on {cell(placement['nodes'])}{suffix}, since {since}"
            )
    for reason in history["reasons"]:
        if overlaps(reason["since"], reason["until"]):
            since = clock(reason["since"])
            return f"{clock(time)}: job {job} waited, since {since}: {reason['reason']}"
    return f"{clock(time)}: nothing is recorded of job {job}"


def _throughput(row: Document) -> str | None:
    """Format such as `about 540 samples/s, 400 to 700`."""
    if row["throughput"] is None:
        return None
    if not row.get("between"):
        return f"{row['throughput']:.3g} samples/s"
    low, high = row["between"]
    return f"about {row['throughput']:.3g} samples/s, {low:.3g} to {high:.3g}"


def _expectation(row: Document) -> str:
    """Format such as `about 3h 06m, 1h 12m to 6h 00m, from 14 runs of this workload by ann`."""
    expectation = row.get("expected")
    by_samples = row["samples"] is not None
    if not expectation:
        text = duration(row["age_seconds"])
    else:
        age, low, high = (duration(expectation[key]) for key in ("seconds", "low", "high"))
        interval = "" if low == high else f", {low} to {high}"
        text = f"about {age}{interval}, {expectation['source']}"
        by_samples = expectation["source"] == "from its training loop"
    if by_samples and row["source"] == "assumed":
        text += ", at an assumed speed: none was measured yet"
    return text


def when(row: Document, now: float | None) -> str:
    """Format such as `12m (4m to 40m)` from ``now`` on; `-` if unknown."""
    prediction = row.get("predicted")
    if not prediction or now is None:
        return "-"
    remaining, low, high = (
        duration(max(0.0, prediction[key] - now)) for key in ("expected", "low", "high")
    )
    return remaining if low == high else f"{remaining} ({low} to {high})"


def _prediction(row: Document) -> list[tuple[str, object]]:
    """Say when the job is expected to start or end, and how old that estimate is."""
    prediction = row.get("predicted")
    if not prediction:
        return []
    now = time.time()
    verb = "starts in" if prediction["kind"] == "start" else "ends in"
    age = duration(max(0.0, now - prediction["at"]))
    text = f"{when(row, now)}, by {clock(prediction['high'])}; estimated {age} ago, 80 % interval"
    if prediction["source"] == "time limit":
        text += ", from its time limit"
    facts: list[tuple[str, object]] = [(verb, text)]
    if prediction["progress"] is not None and prediction["kind"] == "end":
        facts.append(("progress", f"{prediction['progress']:.0%}"))
    return facts


def _facts(row: Document) -> list[tuple[str, object]]:
    facts: list[tuple[str, object]] = [
        ("comment", row["comment"]),
        ("state", row["state"]),
        ("placement", row["placement"]),
        ("waited", duration(row["wait_seconds"])),
        ("expected run time", _expectation(row)),
        *_prediction(row),
        ("latency ratio", row["latency_ratio"]),
        ("priority", row["priority"]),
        ("sensitivity to spreading", row["sensitivity"]),
        ("gain of its shape", row["gain"]),
        ("throughput", _throughput(row)),
        ("known from", row["source"]),
        ("workload", row["workload"]),
        ("restarts", row["restarts"]),
        ("samples", _progress(row)),
    ]
    facts += _hung(row)
    if row.get("idle"):
        facts.append(("noticed", row["idle"]["text"]))
    if row["noticed"]:
        facts.append(("noticed", row["noticed"]))
    if row["reason"]:
        facts.append(("waits because", ": ".join(filter(None, (row["code"], row["reason"])))))
    return facts


def _hung(row: Document) -> list[tuple[str, object]]:
    """Say what hangs, and where its ranks stand; an older hopsd does not report this."""
    hung = row.get("hung")
    if not hung:
        return []
    facts: list[tuple[str, object]] = [("training", hung["text"])]
    facts += [(f"rank {rank['rank']}", standing(rank)) for rank in hung["ranks"][:FIRST]]
    folders = sorted({str(Path(r["stacks"]).parent) for r in hung["ranks"] if r["stacks"]})
    if folders:
        facts.append(("stacks of all ranks", f"in {', '.join(folders)[:500]}"))
    return facts


def standing(rank: Document) -> str:
    """Say where a rank of a hung training stands."""
    call = f" in {rank['waits_in']}" if rank["waits_in"] else ""
    line = f", at {rank['line']}" if rank["line"] else ""
    return f"{rank['state']}{call} on {rank['node']}{line}"


_ENDED_IN_PROFILE = (
    "it ended in its measuring run on one GPU while hopsd was away, and Slurm has forgotten it"
)


def _ended_facts(history: Document) -> list[tuple[str, object]]:
    """List what is kept about a job that has left the queue."""
    record, placements = history["record"], history["placements"]
    ended_by_itself = record["state"] in ("COMPLETED", "FAILED", "TIMEOUT")
    is_unmeasured = ended_by_itself and bool(placements) and placements[-1]["profiling"]
    return [
        *([("submit it again", _ENDED_IN_PROFILE)] if is_unmeasured else []),
        ("state", record["state"]),
        ("ended", clock(record["end"])),
        ("waited", duration(record["wait_seconds"])),
        ("ran", duration(record["run_seconds"])),
        ("latency ratio", record["latency_ratio"]),
        ("workload", record["workload"]),
        ("restarts", record["restarts"]),
        ("samples", f"{record['samples_done']:,.0f}"),
    ]
