"""Renders hopsctl's output; every list is a table of the same style."""

from __future__ import annotations

import json
import sys
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from hopsd.ctl.terminal import printable

console = Console(highlight=False, width=None if sys.stdout.isatty() else 160)

WIDE = 120
"""Width from which a console has room for every column of a table."""


NARROWEST = 8
"""Minimum width of a wrapped column."""

MAX_DRAWN_ROWS = 200
"""Maximum rows of a table that rich lays out. Longer tables have one line per row, however wide:
they are searched rather than read, and rich takes 9 s to lay out 15,000 rows."""


def table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    wide: Collection[str] = (),
    long: Collection[str] = (),
    limit: int | None = None,
    total: int | None = None,
) -> RenderableType:
    """Lay out a table with numbers aligned right, words left; None is shown as a dash.

    ``wide`` columns are left out on consoles narrower than ``WIDE``. ``long`` columns and the last
    one are wrapped if there is too little room, and if that is not enough, the others, too: nothing
    is ever cut, and no heading breaks within a word if there is room for all words. If there are
    more than ``MAX_DRAWN_ROWS`` rows, each is one line. Rows beyond ``limit`` are only counted;
    ``total`` is the number of rows if not all are given.
    """
    rows = list(rows)
    columns_shown = [
        i for i, name in enumerate(columns) if name not in wide or console.width >= WIDE
    ]
    cells = [[cell(row[i]) for i in columns_shown] for row in rows[:limit]]
    hidden_rows = (len(rows) if total is None else total) - len(cells)
    caption = f"and {hidden_rows:,} more" if hidden_rows else ""
    if len(cells) > MAX_DRAWN_ROWS:
        return _Lines(printable(title), [columns[i] for i in columns_shown], cells, caption)
    last = columns_shown[-1]
    full_width = [
        max(len(columns[index]), *(cell_len(row[position]) for row in cells), 1)
        for position, index in enumerate(columns_shown)
        if index != last and columns[index] not in long
    ]
    hidden_columns = len(columns_shown) - len(full_width)
    is_crowded = (
        sum(full_width) + hidden_columns * NARROWEST + 2 * len(columns_shown) > console.width
    )
    words = [max(map(len, [*columns[index].split(), ""])) for index in columns_shown]
    room = sum(words) + 2 * len(columns_shown) <= console.width
    output = Table(
        title=Text(printable(title)),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    if caption:
        output.caption = Text(caption)
        output.caption_justify = "left"
    for position, index in enumerate(columns_shown):
        figures = all(_is_figure(row[position]) for row in cells)
        breaks = is_crowded or index == last or columns[index] in long
        output.add_column(
            columns[index],
            justify="right" if figures and cells else "left",
            overflow="fold",
            no_wrap=not breaks,
            min_width=words[position] if room else None,
        )
    for row in cells:
        output.add_row(*map(Text, row))
    return output


@dataclass(frozen=True)
class _Lines:
    """A table with one line for each row, however long."""

    title: str
    columns: Sequence[str]
    cells: Sequence[Sequence[str]]
    caption: str

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        cell_columns = [
            _cells_of_column(name, column)
            for name, column in zip(self.columns, zip(*self.cells, strict=True), strict=True)
        ]
        head, *rows = ["  ".join(row).rstrip() for row in zip(*cell_columns, strict=True)]
        dash = "-" if options.ascii_only else "\N{BOX DRAWINGS LIGHT HORIZONTAL}"
        rule = dash * cell_len(head)
        lines = [self.title, "", head, rule, *rows, *filter(None, [self.caption]), ""]
        yield Segment("".join(f"{line}\n" for line in lines))


def _cells_of_column(name: str, column: Sequence[str]) -> list[str]:
    """Pad a column's cells to one width, figures aligned right; the name comes first."""
    texts = [name, *column]
    widths = [len(text) if text.isascii() else cell_len(text) for text in texts]
    width = max(widths)
    blanks = [" " * (width - cell_width) for cell_width in widths]
    if all(map(_is_figure, column)):
        return [blank + text for blank, text in zip(blanks, texts, strict=True)]
    return [text + blank for blank, text in zip(blanks, texts, strict=True)]


def cell(value: object) -> str:
    """Format a value for people."""
    if value is None or value in ({}, []):
        return "-"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    if isinstance(value, Mapping):
        return printable(" ".join(f"{key}:{count}" for key, count in value.items()))
    if isinstance(value, list | tuple):
        return printable(",".join(str(item) for item in value))
    return printable(str(value))


def _is_figure(text: str) -> bool:
    return text == "-" or text.replace(",", "").replace(".", "").lstrip("-").isdigit()


def lines(part: RenderableType) -> int:
    """Number of lines that ``part`` takes on the console."""
    return len(console.render_lines(part, pad=False))


def fitting_limit(draw: Callable[[int], RenderableType], limit: int, height: int) -> int:
    """Largest number of rows, up to ``limit``, with which a table takes at most ``height`` lines;
    0 if there is none.

    ``draw`` makes the table with a number of rows, each of which takes at least one line. More rows
    never take fewer lines, except for the first row beyond ``MAX_DRAWN_ROWS``.
    """
    limit = min(limit, height)
    for low, high in ((MAX_DRAWN_ROWS, limit), (0, min(MAX_DRAWN_ROWS, limit))):
        candidates = range(low + 1, high + 1)
        if count := bisect_right(candidates, height, key=lambda rows: lines(draw(rows))):
            return low + count
    return 0


def show(*parts: RenderableType) -> None:
    for part in parts:
        console.print(part, crop=False)


def show_json(value: Any) -> None:
    """Print one JSON document on stdout, for programs."""
    print(json.dumps(value, indent=2, sort_keys=False))
