"""`hopsctl health`: slow nodes, nodes that break jobs, trainings that hang, idle GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import click

from hopsd.ctl.address import Address
from hopsd.ctl.daemon_client import ask_daemon, socket_option
from hopsd.ctl.render import show, show_json, table
from hopsd.ctl.user.status import standing
from hopsd.formats.health import health_json, read_health
from hopsd.formats.source import read_text


@click.command()
@click.option("--records", metavar="FILE|-", help="Judge a file of records; do not ask hopsd.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of tables.")
@socket_option
def health(records: str | None, as_json: bool, path: Address) -> None:
    """Name slow nodes, nodes that break jobs, trainings that hang, and GPUs held for nothing.

    Nothing is changed: the site decides what to do about them.

    \b
    Examples:
      hopsctl health
      hopsctl health --records examples/files/health.json --json

    Exit codes: 0 judged, 2 the file is not one of records, 4 hopsd is not reachable.
    """
    if records is None:
        running = ask_daemon(path, "status")["running"]
        document = {**ask_daemon(path, "health"), "hung": _hung(running), "idle": _idle(running)}
    else:
        from hopsd.health.judge import judge  # noqa: PLC0415  # scipy is slow to import

        document = health_json(judge(read_health(read_text(records))))
    if as_json:
        show_json(document)
        return
    _show(document)


def _show(document: Mapping[str, Any]) -> None:
    """Print the verdicts for people, each with its evidence in numbers."""
    slow, lemons = document["slow"], document["lemons"]
    if slow:
        rows = [
            (
                row["node"] + (f", GPU {row['gpu']}" if "gpu" in row else ""),
                f"{1.0 - row['factor']:.1%}",
                f"{1.0 - row['high']:.1%} to {1.0 - row['low']:.1%}",
                "the first record" if row["since"] is None else _time(row["since"]),
            )
            for row in slow
        ]
        show(table("Slow nodes", ["node", "slower by", "95 % interval", "since"], rows))
    if lemons:
        failures = [
            (row["node"], row["failures"], f"{row['expected']:.1f}", f"{row['p']:.1g}")
            for row in lemons
        ]
        head = ["node", "failed runs", "expected", "probability by chance"]
        show(table("Nodes that break jobs", head, failures))
    # An older hopsd does not report this.
    if shared_nodes := document.get("shared"):
        losses = [
            (row["node"], f"{1.0 - row['factor']:.1%}", _time(row["since"])) for row in shared_nodes
        ]
        title = "Not slow themselves: jobs beside each other"
        show(table(title, ["node", "slower than alone by", "since"], losses))
    for job in document.get("hung", []):
        facts = [(f"rank {rank['rank']}", standing(rank)) for rank in job["ranks"]]
        show(table(f"Job {job['job']} of {job['user']} {job['text']}", ["rank", "is"], facts))
    idle = [(row["job"], row["user"], row["gpus"], row["text"]) for row in document.get("idle", [])]
    if idle:
        show(table("GPUs held for nothing", ["job", "user", "GPUs", "evidence"], idle))
    if not slow and not lemons:
        print("No node is certain to be slow or to break jobs.")


def _hung(running: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the jobs of the status that hang; an older hopsd does not report them."""
    return [
        {"job": row["id"], "user": row["user"], **row["hung"]} for row in running if row.get("hung")
    ]


def _idle(running: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the jobs that hold GPUs for nothing."""
    return [
        {"job": row["id"], "user": row["user"], **row["idle"]} for row in running if row.get("idle")
    ]


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
