"""`hopsctl status` and `hopsctl explain`."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import click
from rich.console import Group
from rich.live import Live
from rich.text import Text

from hopsd.ctl.daemon import ask_daemon, socket_option
from hopsd.ctl.render import clock, console, duration, show, show_json, table

Document = dict[str, Any]


@click.command()
@socket_option
@click.option("--watch", is_flag=True, help="Refresh until Ctrl-C.")
@click.option("--every", default=2.0, show_default=True, help="Seconds between refreshes.")
@click.option("--json", "as_json", is_flag=True, help="Print the document for programs.")
def status(path: Path, watch: bool, every: float, as_json: bool) -> None:
    """Cluster, round, RAQLR, running and waiting jobs with their reasons."""
    if as_json:
        show_json(ask_daemon(path, "status"))
        return
    if not watch:
        show(view(ask_daemon(path, "status")))
        return
    with Live(view(ask_daemon(path, "status")), console=console, auto_refresh=False) as live:
        try:
            while True:
                time.sleep(every)
                live.update(view(ask_daemon(path, "status")), refresh=True)
        except KeyboardInterrupt:
            return


def view(doc: Document) -> Group:
    """The status document for a person."""
    parts: list[Any] = [_headline(doc)]
    if doc["error"]:
        parts.append(Text(doc["error"], style="bold red"))
    parts.append(_nodes(doc))
    parts.append(_running(doc))
    parts.append(_waiting(doc))
    steps = (doc["round"] or {}).get("steps", [])
    if steps:
        parts.append(_steps(steps))
    return Group(*parts)


def _headline(doc: Document) -> Text:
    gpus = sum(node["gpus"] for node in doc["nodes"])
    idle = sum(node["idle"] for node in doc["nodes"] if node["usable"])
    raqlr = "-" if doc["raqlr"] is None else f"{doc['raqlr']:.2f}"
    text = (
        f"hops {doc['version']}  {doc['mode']}  Slurm {doc['slurm_version'] or '-'} by"
        f" {doc['port']}  {gpus} GPUs, {idle} idle  RAQLR {raqlr}  {clock(doc['time'])}"
    )
    if doc["round"]:
        left = doc["round"]["end"] - doc["time"]
        text += f"\nround ends in {duration(left)}; {doc['sentence']}"
    else:
        text += f"\n{doc['sentence']}"
    return Text(text)


def _nodes(doc: Document) -> Any:
    rows = [
        (
            node["name"],
            node["gpu_type"],
            node["gpus"],
            node["idle"],
            node["state"] if node["usable"] else f"{node['state']} (not used)",
            {f"job {job}": gpus for job, gpus in node["jobs"].items()},
        )
        for node in doc["nodes"]
    ]
    return table("Nodes", ["node", "type", "GPUs", "idle", "state", "GPUs held"], rows)


def _running(doc: Document) -> Any:
    rows = [
        (
            job["id"],
            job["user"],
            job["name"],
            job["reqs"],
            job["placement"],
            duration(doc["time"] - job["since"]) if job["since"] else "-",
            duration(job["wait_seconds"]),
            job["latency_ratio"],
            job["restarts"],
            _progress(job),
        )
        for job in doc["running"]
    ]
    columns = ["job", "user", "name", "reqs", "placement", "for", "waited", "LR", "restarts"]
    return table("Running", [*columns, "samples"], rows)


def _progress(job: Document) -> str:
    done = f"{job['samples_done']:,.0f}"
    return f"{done} of {job['samples']:,.0f}" if job["samples"] else done


def _waiting(doc: Document) -> Any:
    rows = [
        (
            job["id"],
            job["user"],
            job["name"],
            job["reqs"],
            duration(job["wait_seconds"]),
            job["priority"],
            job["code"] or job["state"].lower(),
            job["reason"],
        )
        for job in doc["waiting"]
    ]
    columns = ["job", "user", "name", "reqs", "waited", "priority", "code", "why"]
    return table("Waiting", columns, rows)


def _steps(steps: list[Document]) -> Any:
    rows = [
        (s["job"], s["kind"], s["from"], s["to"], s["status"], s["error"] or None) for s in steps
    ]
    return table("Last changes", ["job", "step", "from", "to", "outcome", "error"], rows)


@click.command()
@click.argument("job")
@socket_option
@click.option("--json", "as_json", is_flag=True, help="Print the document for programs.")
def explain(job: str, path: Path, as_json: bool) -> None:
    """Why JOB runs where it runs, or why it waits."""
    answer = ask_daemon(path, "explain", job=job)
    if as_json:
        show_json(answer)
        return
    row, history = answer["job"], answer["history"]
    if row is None and not history["placements"]:
        print(f"hopsctl: hops knows no job {job}", file=sys.stderr)
        sys.exit(1)
    if row is not None:
        show(table(f"Job {job}", ["what", "value"], _facts(row)))
    show(
        table(
            "Placements",
            ["from", "to", "GPUs", "profiling"],
            [
                (clock(p["start"]), clock(p["end"]), p["nodes"], "yes" if p["profiling"] else "no")
                for p in history["placements"]
            ],
        )
    )


def _facts(row: Document) -> list[tuple[str, object]]:
    facts: list[tuple[str, object]] = [
        ("comment", row["comment"]),
        ("state", row["state"]),
        ("placement", row["placement"]),
        ("waited", duration(row["wait_seconds"])),
        ("expected run time", duration(row["age_seconds"])),
        ("latency ratio", row["latency_ratio"]),
        ("priority", row["priority"]),
        ("sensitivity to spreading", row["sensitivity"]),
        ("gain over its slowest shape", row["gain"]),
        ("throughput (samples/s)", row["throughput"]),
        ("known from", row["source"]),
        ("workload", row["workload"]),
        ("restarts", row["restarts"]),
        ("samples", _progress(row)),
    ]
    if row["reason"]:
        facts.append(("waits because", f"{row['code']}: {row['reason']}"))
    return facts
