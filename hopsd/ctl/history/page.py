"""`hopsctl report --html`: the report as one self-contained page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from itertools import pairwise
from typing import Any

from hopsd.ctl.terminal import printable
from hopsd.model.devices import is_cpu
from hopsd.model.ids import GpuType
from hopsd.model.reason import count_of, duration

Document = dict[str, Any]

USES = {
    "hops": ("jobs of hops", "#0b6e99"),
    "plain": ("plain jobs", "#8fb8c9"),
    "fragmented": ("idle while jobs waited", "#d1495b"),
    "idle": ("idle, nobody waited", "#e4e4e4"),
    "down": ("drained or down", "#8a8a8a"),
}
"""Label and colour of each use."""

WIDTH, HEIGHT, LEFT, BOTTOM = 900, 240, 60, 28
ROWS = 50
"""Maximum users and accounts shown: those with the most GPU hours."""

_STYLE = """
body{font:15px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:1000px;padding:0 1rem;
color:#1c1c1c;background:#fff}
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2rem}
.wide{overflow-x:auto}table{border-collapse:collapse}
td,th{padding:.2rem .7rem;text-align:right;border-bottom:1px solid #e2e2e2;white-space:nowrap}
td:first-child,th:first-child{text-align:left}
svg{width:100%;height:auto;font:11px system-ui,sans-serif}
.tiles{display:flex;flex-wrap:wrap;gap:.8rem}
.tiles div{border:1px solid #e2e2e2;border-radius:6px;padding:.6rem 1rem;min-width:8rem}
.tiles b{display:block;font-size:1.3rem}
.legend span{margin-right:1.2rem;white-space:nowrap}
.legend i{display:inline-block;width:.8em;height:.8em;margin-right:.35em;border:1px solid #bbb}
"""


def slurm_sentence(jobs: int) -> str:
    """Say how many jobs Slurm ran while hops was only a shadow."""
    verb = "is" if jobs == 1 else "are"
    return (
        f"{count_of(jobs, 'jobs')} that Slurm ran while hops was a shadow {verb} not in the"
        " figures of jobs."
    )


def page(document: Document) -> str:
    """Render the page as HTML text."""
    title = f"GPUs from {_day(document['since'])} to {_day(document['until'])}"
    user, slurms = document["user"], document["slurm_jobs"]
    body = [
        f"<h1>{escape(title)}</h1>",
        f"<p>Only jobs of {_text(user)}.</p>" if user is not None else "",
        "<p>hops is a shadow: Slurm ran these jobs.</p>" if document["shadow"] else "",
        f"<p>{slurm_sentence(slurms)}</p>" if slurms and not document["shadow"] else "",
        _tiles(document),
        _use(document),
        _waits(document),
        _ratios(document["ratios"]),
        _comparison(document),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>"
        f"<body>{''.join(body)}</body></html>"
    )


def _text(text: object) -> str:
    return escape(printable(str(text)))


def _day(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC).astimezone():%Y-%m-%d %H:%M}"


def _tiles(document: Document) -> str:
    figures: list[tuple[str, str]] = []
    hours = document["gpu_hours"] and document["gpu_hours"]["all"]
    usable_hours = sum(hours[name] for name in USES if name != "down") if hours else 0.0
    if usable_hours:
        figures += [
            (f"{(hours['hops'] + hours['plain']) / usable_hours:.0%}", "of the GPUs' time used"),
            (f"{hours['fragmented'] / usable_hours:.1%}", "idle while jobs waited"),
        ]
    jobs, all_waits = document["jobs"], document["waits"]["all"]
    if all_waits:
        figures += [
            (f"{all_waits[0]['jobs']:,}", "jobs ended"),
            (duration(all_waits[0]["mean_wait"]), "waited in the mean"),
            (f"{all_waits[0]['mean_ratio']:.2f}", "mean latency ratio"),
        ]
    figures += [
        (f"{jobs['restarting_hours']:,.1f} h", f"of GPUs lost to {jobs['restarts']:,} restarts"),
        (f"{jobs['profiling_hours']:,.1f} h", f"for {jobs['profile_runs']:,} profile runs"),
    ]
    tiles = "".join(f"<div><b>{escape(value)}</b>{escape(label)}</div>" for value, label in figures)
    return f'<div class="tiles">{tiles}</div>'


def _use(document: Document) -> str:
    hours = document["gpu_hours"]
    if hours is None:
        return "<p>You may not see how the cluster's GPUs were used.</p>"
    legend = "".join(
        f'<span><i style="background:{colour}"></i>{escape(name)}</span>'
        for name, colour in USES.values()
    )
    order = [*(kind for kind in hours if kind != "all"), "all"]
    rows = [[kind, *(f"{hours[kind][name]:,.0f}" for name in USES)] for kind in order]
    return (
        f'<h2>GPU hours</h2><p class="legend">{legend}</p>{bars(document["over_time"])}'
        + _table(["type", *(name for name, _ in USES.values())], rows)
        + f"<p>{racks_sentence(hours['all'])}</p>"
    )


def racks_sentence(hours: Document) -> str:
    """Describe idle racks that no waiting rack-bound job could use; "" if there were none."""
    if not hours["rack_fragmented"]:
        return ""
    return (
        f"Of the fragmented GPU hours {hours['rack_fragmented']:,.1f} were whole racks' worth, on"
        " racks where no waiting rack-bound job could use them."
    )


def bars(use: Sequence[Document]) -> str:
    """Draw a bar of GPU hours by use for each hour or day, without CPUs."""
    sums: dict[float, dict[str, float]] = {}
    for row in use:
        if is_cpu(GpuType(row["gpu_type"])):
            continue
        day = sums.setdefault(row["hour"], dict.fromkeys(USES, 0.0))
        for name in USES:
            day[name] += row[name]
    if not sums:
        return "<p>Nothing was counted.</p>"
    times, top = sorted(sums), max(sum(day.values()) for day in sums.values()) or 1.0
    step = min((b - a for a, b in pairwise(times)), default=3600.0)
    columns = round((times[-1] - times[0]) / step) + 1
    width, plot_height = (WIDTH - LEFT) / columns, HEIGHT - BOTTOM - 8
    parts = [
        f"<text x='4' y='14'>{top:,.0f} h</text>",
        f"<text x='4' y='{HEIGHT - BOTTOM}'>0</text>",
    ]
    for hour in times:
        x, y = LEFT + round((hour - times[0]) / step) * width, float(HEIGHT - BOTTOM)
        for name, (label, colour) in USES.items():
            height = sums[hour][name] / top * plot_height
            y -= height
            parts.append(
                f'<rect x="{x:.2f}" y="{y:.2f}" width="{max(width - 1, 0.5):.2f}"'
                f' height="{height:.2f}" fill="{colour}"><title>{_day(hour)}:'
                f" {sums[hour][name]:,.1f} h {escape(label)}</title></rect>"
            )
    for hour in (times[0], times[-1]):
        anchor = "start" if hour == times[0] else "end"
        x = LEFT if hour == times[0] else WIDTH
        parts.append(
            f'<text x="{x}" y="{HEIGHT - 8}" text-anchor="{anchor}">{_day(hour)[:10]}</text>'
        )
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">{"".join(parts)}</svg>'


def _waits(document: Document) -> str:
    head = ["", "jobs", "GPU hours", "mean wait", "median", "90 %", "mean wait/run", "90 %", "max"]
    parts = []
    for group, title in (("size", "size, GPUs up to"), ("user", "user"), ("account", "account")):
        group_rows = document["waits"][group]
        rows = [_wait_row(row) for row in group_rows[:ROWS]]
        note = f"<p>and {len(group_rows) - ROWS} more</p>" if len(group_rows) > ROWS else ""
        if rows:
            parts.append(f"<h2>Waiting by {title}</h2>{_table(head, rows)}{note}")
    return "".join(parts)


def _wait_row(row: Document) -> list[str]:
    waits = [duration(row[key]) for key in ("mean_wait", "median_wait", "p90_wait")]
    ratios = [f"{row[key]:.2f}" for key in ("mean_ratio", "p90_ratio", "max_ratio")]
    return [row["name"] or "none", f"{row['jobs']:,}", f"{row['gpu_hours']:,.1f}", *waits, *ratios]


def _ratios(ratios: Document) -> str:
    head = ["latency ratio up to", *map(str, ratios["up_to"]), "more"]
    row = ["jobs", *(f"{jobs:,}" for jobs in ratios["jobs"])]
    return f"<h2>Latency ratios</h2>{_table(head, [row])}"


def _comparison(document: Document) -> str:
    earlier_figures, present_figures = document["before"], document["waits"]["hops"]
    if isinstance(earlier_figures, str):
        return f"<p>Before hops: {_text(earlier_figures)}.</p>"
    if earlier_figures is None or not present_figures:
        return ""
    rows = [
        [name, f"{row['jobs']:,}", f"{row['gpu_hours']:,.1f}",
         *(duration(row[key]) for key in ("mean_wait", "median_wait", "p90_wait")),
         f"{row['mean_slowdown']:.2f}"]
        for name, row in (("before", earlier_figures), ("with hops", present_figures[0]))
    ]  # fmt: skip
    head = ["", "jobs", "GPU hours", "mean wait", "median", "90 %", "bounded slowdown"]
    return (
        f"<h2>Before hops, from {_day(earlier_figures['since'])[:10]} on</h2>{_table(head, rows)}"
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    cells = "".join(f"<th>{escape(name)}</th>" for name in head)
    lines = "".join(
        "<tr>" + "".join(f"<td>{_text(value)}</td>" for value in row) + "</tr>" for row in rows
    )
    return f'<div class="wide"><table><tr>{cells}</tr>{lines}</table></div>'
