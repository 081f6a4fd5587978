"""`hopsctl report --html`: the report as one page that needs nothing from outside."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from itertools import pairwise
from typing import Any

from hopsd.ctl.terminal import printable
from hopsd.model.devices import is_cpu
from hopsd.model.ids import GpuType
from hopsd.model.reason import duration

Document = dict[str, Any]

USES = {
    "hops": ("jobs of hops", "#0b6e99"),
    "plain": ("plain jobs", "#8fb8c9"),
    "fragmented": ("idle while jobs waited", "#d1495b"),
    "idle": ("idle, nobody waited", "#e4e4e4"),
    "down": ("drained or down", "#8a8a8a"),
}
"""What a use is called, and its colour."""

WIDTH, HEIGHT, LEFT, BOTTOM = 900, 240, 60, 28
ROWS = 50
"""Users and accounts shown, those with the most GPU hours."""

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


def page(document: Document) -> str:
    """The page as HTML text."""
    title = f"GPUs from {_day(document['since'])} to {_day(document['until'])}"
    whose = document["user"]
    body = [
        f"<h1>{escape(title)}</h1>",
        f"<p>Only jobs of {_text(whose)}.</p>" if whose is not None else "",
        "<p>hops is a shadow: Slurm ran these jobs.</p>" if document["shadow"] else "",
        _tiles(document),
        _use(document),
        _waits(document),
        _ratios(document["ratios"]),
        _before(document),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>"
        f"<body>{''.join(body)}</body></html>"
    )


def _text(text: object) -> str:
    return escape(printable(str(text)))


def _day(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC).astimezone():%Y-%m-%d %H:%M}"


def _tiles(document: Document) -> str:
    found: list[tuple[str, str]] = []
    every = document["gpu_hours"] and document["gpu_hours"]["all"]
    up = sum(every[name] for name in USES if name != "down") if every else 0.0
    if up:
        found += [
            (f"{(every['hops'] + every['plain']) / up:.0%}", "of the GPUs' time used"),
            (f"{every['fragmented'] / up:.1%}", "idle while jobs waited"),
        ]
    jobs, ended = document["jobs"], document["waits"]["all"]
    if ended:
        found += [
            (f"{ended[0]['jobs']:,}", "jobs ended"),
            (duration(ended[0]["mean_wait"]), "waited in the mean"),
            (f"{ended[0]['mean_ratio']:.2f}", "mean latency ratio"),
        ]
    found += [
        (f"{jobs['restarting_hours']:,.1f} h", f"of GPUs lost to {jobs['restarts']:,} restarts"),
        (f"{jobs['profiling_hours']:,.1f} h", f"for {jobs['profile_runs']:,} profile runs"),
    ]
    tiles = "".join(f"<div><b>{escape(value)}</b>{escape(what)}</div>" for value, what in found)
    return f'<div class="tiles">{tiles}</div>'


def _use(document: Document) -> str:
    hours = document["gpu_hours"]
    if hours is None:
        return "<p>What became of the cluster's GPUs is not for you to see.</p>"
    legend = "".join(
        f'<span><i style="background:{colour}"></i>{escape(name)}</span>'
        for name, colour in USES.values()
    )
    order = [*(kind for kind in hours if kind != "all"), "all"]
    rows = [[kind, *(f"{hours[kind][name]:,.0f}" for name in USES)] for kind in order]
    return (
        f'<h2>GPU hours</h2><p class="legend">{legend}</p>{_bars(document["over_time"])}'
        + _table(["type", *(name for name, _ in USES.values())], rows)
    )


def _bars(use: Sequence[Document]) -> str:
    """A bar for each hour or day, of GPU hours by use; CPUs are left out."""
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
    places = round((times[-1] - times[0]) / step) + 1
    width, room = (WIDTH - LEFT) / places, HEIGHT - BOTTOM - 8
    parts = [
        f"<text x='4' y='14'>{top:,.0f} h</text>",
        f"<text x='4' y='{HEIGHT - BOTTOM}'>0</text>",
    ]
    for at in times:
        x, y = LEFT + round((at - times[0]) / step) * width, float(HEIGHT - BOTTOM)
        for name, (called, colour) in USES.items():
            high = sums[at][name] / top * room
            y -= high
            parts.append(
                f'<rect x="{x:.2f}" y="{y:.2f}" width="{max(width - 1, 0.5):.2f}"'
                f' height="{high:.2f}" fill="{colour}"><title>{_day(at)}: {sums[at][name]:,.1f} h'
                f" {escape(called)}</title></rect>"
            )
    for at in (times[0], times[-1]):
        anchor = "start" if at == times[0] else "end"
        x = LEFT if at == times[0] else WIDTH
        parts.append(
            f'<text x="{x}" y="{HEIGHT - 8}" text-anchor="{anchor}">{_day(at)[:10]}</text>'
        )
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">{"".join(parts)}</svg>'


def _waits(document: Document) -> str:
    head = ["", "jobs", "GPU hours", "mean wait", "median", "90 %", "mean LR", "90 % LR", "max LR"]
    parts = []
    for by, title in (("size", "size, GPUs up to"), ("user", "user"), ("account", "account")):
        found = document["waits"][by]
        rows = [_wait_row(row) for row in found[:ROWS]]
        more = f"<p>and {len(found) - ROWS} more</p>" if len(found) > ROWS else ""
        if rows:
            parts.append(f"<h2>Waiting by {title}</h2>{_table(head, rows)}{more}")
    return "".join(parts)


def _wait_row(row: Document) -> list[str]:
    waits = [duration(row[key]) for key in ("mean_wait", "median_wait", "p90_wait")]
    ratios = [f"{row[key]:.2f}" for key in ("mean_ratio", "p90_ratio", "max_ratio")]
    return [row["name"] or "none", f"{row['jobs']:,}", f"{row['gpu_hours']:,.1f}", *waits, *ratios]


def _ratios(ratios: Document) -> str:
    head = ["latency ratio up to", *map(str, ratios["up_to"]), "more"]
    row = ["jobs", *(f"{jobs:,}" for jobs in ratios["jobs"])]
    return f"<h2>Latency ratios</h2>{_table(head, [row])}"


def _before(document: Document) -> str:
    before, now = document["before"], document["waits"]["hops"]
    if isinstance(before, str):
        return f"<p>Before hops: {_text(before)}.</p>"
    if before is None or not now:
        return ""
    rows = [
        [name, f"{row['jobs']:,}", f"{row['gpu_hours']:,.1f}",
         *(duration(row[key]) for key in ("mean_wait", "median_wait", "p90_wait")),
         f"{row['mean_slowdown']:.2f}"]
        for name, row in (("before", before), ("with hops", now[0]))
    ]  # fmt: skip
    head = ["", "jobs", "GPU hours", "mean wait", "median", "90 %", "bounded slowdown"]
    return f"<h2>Before hops, from {_day(before['since'])[:10]} on</h2>{_table(head, rows)}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    cells = "".join(f"<th>{escape(name)}</th>" for name in head)
    lines = "".join(
        "<tr>" + "".join(f"<td>{_text(value)}</td>" for value in row) + "</tr>" for row in rows
    )
    return f'<div class="wide"><table><tr>{cells}</tr>{lines}</table></div>'
