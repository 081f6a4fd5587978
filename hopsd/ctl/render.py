"""The one renderer of hopsctl: every list is a table of the same look."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table

console = Console(highlight=False, width=None if sys.stdout.isatty() else 160)


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """Figures to the right, words to the left; None is shown as a dash."""
    cells = [[cell(value) for value in row] for row in rows]
    shown = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for index, name in enumerate(columns):
        figures = all(_is_figure(row[index]) for row in cells)
        last = index == len(columns) - 1
        shown.add_column(
            name,
            justify="right" if figures and cells else "left",
            overflow="fold",
            no_wrap=not last,
        )
    for row in cells:
        shown.add_row(*row)
    return shown


def cell(value: object) -> str:
    """A value as people read it."""
    if value is None or value in ({}, []):
        return "-"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    if isinstance(value, Mapping):
        return " ".join(f"{key}:{count}" for key, count in value.items())
    if isinstance(value, list | tuple):
        return ",".join(str(item) for item in value)
    return str(value)


def _is_figure(text: str) -> bool:
    return text == "-" or text.replace(",", "").replace(".", "").lstrip("-").isdigit()


def duration(seconds: float | None) -> str:
    """Such as `2h05m`, `3m20s`, `12s`."""
    if seconds is None:
        return "-"
    minutes, rest = divmod(int(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02}m"
    return f"{minutes}m{rest:02}s" if minutes else f"{rest}s"


def clock(when: float | None) -> str:
    """Local time of day."""
    if when is None:
        return "-"
    return datetime.fromtimestamp(when, UTC).astimezone().strftime("%H:%M:%S")


def show(*parts: RenderableType) -> None:
    for part in parts:
        console.print(part)


def show_json(value: Any) -> None:
    """Machine-readable output: one JSON document on stdout."""
    print(json.dumps(value, indent=2, sort_keys=False))
