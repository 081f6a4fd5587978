"""Writes the text of mails: to users about their jobs, to admins about the day."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from hopsd.model.reason import clock, duration
from hopsd.notify.news import STUCK_CODES, News, one_line

LINES = 12
"""The most lines of each list; the rest is counted."""


def paragraph(item: News, history: Mapping[str, Any]) -> str:
    """Say what happened to a job and what hops did with it; ``history``: `History.job_history`."""
    lines = [f"Job {item.job}: {item.text}.", *_placements(history["placements"])]
    waits = history["reasons"][-1:]
    lines += [f"  last waited because: {wait['reason']}" for wait in waits]
    lines.append(f"  more: hopsctl explain {item.job}")
    return "\n".join(map(one_line, lines))


def _placements(placements: Sequence[Mapping[str, Any]]) -> list[str]:
    visible = placements[-LINES:]
    omitted_count = len(placements) - len(visible)
    lines = [f"  {omitted_count} earlier places"] if omitted_count else []
    for place in visible:
        nodes = " ".join(f"{node}:{gpus}" for node, gpus in place["nodes"].items())
        end = "now" if place["end"] is None else clock(place["end"])
        purpose = " (profile run)" if place["profiling"] else ""
        lines.append(f"  ran on {nodes} from {clock(place['start'])} to {end}{purpose}")
    return lines


def digest(
    doc: Mapping[str, Any],
    use: Sequence[Mapping[str, Any]],
    ended_jobs: Sequence[Mapping[str, Any]],
) -> str:
    """Summarize the last day for admins. ``doc`` is the status document, ``use`` the day's `GpuUse`
    rows, ``ended_jobs`` the records of the jobs that ended that day.
    """
    states = Counter(record["state"].lower() for record in ended_jobs)
    waits = [record["wait_seconds"] for record in ended_jobs]
    lines = [
        f"{len(doc['running'])} jobs run, {len(doc['waiting'])} wait.",
        f"{len(ended_jobs)} jobs ended"
        + (f": {', '.join(f'{n} {state}' for state, n in states.most_common())}" if states else "")
        + (f"; they had waited {duration(sum(waits) / len(waits))} on average." if waits else "."),
        "",
        *_use(use),
    ]
    nodes = [f"  {n['name']}: {n['health'] or n['state'].lower()}" for n in doc["nodes"]
             if n["health"] or not n["usable"]]  # fmt: skip
    stuck = [
        f"  {row['id']} of {row['user']}, {duration(row['wait_seconds'])}: {row['reason']}"
        for row in doc["waiting"]
        if row["code"] in STUCK_CODES
    ]
    lines += _list("Nodes that take no work, or break jobs:", nodes)
    lines += _list("Jobs that wait for a limit, or can run nowhere:", stuck)
    if doc["error"]:
        lines += ["", f"The last round failed: {doc['error']}"]
    return "\n".join(map(one_line, lines))


def _use(use: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = []
    for gpu_type in sorted({row["gpu_type"] for row in use}):
        rows = [row for row in use if row["gpu_type"] == gpu_type]
        parts = {key: sum(row[key] for row in rows) for key in USE_WORDS}
        total = sum(parts.values()) or 1.0
        shares = ", ".join(
            f"{100 * value / total:.0f} % {USE_WORDS[key]}" for key, value in parts.items() if value
        )
        lines.append(f"{gpu_type}: {shares}")
    return lines


USE_WORDS = {
    "hops": "for hops' jobs",
    "plain": "for plain Slurm jobs",
    "fragmented": "idle while jobs waited",
    "idle": "idle",
    "down": "down",
}
"""What the fields of `GpuUse` are called in a digest."""


def _list(title: str, lines: Sequence[str]) -> list[str]:
    suffix = [f"  and {len(lines) - LINES} more"] if len(lines) > LINES else []
    return ["", title, *lines[:LINES], *suffix] if lines else []
