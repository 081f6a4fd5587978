"""Shows progress and the time left on standard error: a bar or, in log files, occasional lines."""

from __future__ import annotations

import sys
from time import monotonic
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.progress import TimeElapsedColumn as Elapsed
from rich.text import Text

from hopsd.ctl.terminal import complain, printable
from hopsd.model.reason import duration

LINE_SECONDS = 600.0
"""Time between two lines without a terminal, so that a run of 12 hours prints 72."""


class ProgressBar:
    """A context manager that shows a bar, and removes it at the end.

    If standard error is not a terminal, it prints a line every ten minutes.
    """

    def __init__(self, label: str, unit: str = "") -> None:
        """``label`` names what is under way; ``unit`` what is counted, such as ``jobs``."""
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(30),
            MofNCompleteColumn(),
            TextColumn(unit),
            Elapsed(),
            TextColumn("left:"),
            TimeRemainingColumn(compact=True),
            console=Console(stderr=True),
            transient=True,
            disable=not sys.stderr.isatty(),
            redirect_stdout=sys.stdout.isatty(),  # leave output to a file alone
        )
        self._task = self._progress.add_task(Text(printable(label)).markup, total=None)
        self._label, self._unit = label, unit
        self._line = monotonic(), 0.0

    def __enter__(self) -> ProgressBar:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def show(self, position: float, total: float) -> None:
        """Show that ``position`` of ``total`` are done."""
        self._progress.update(self._task, completed=position, total=total)
        if self._progress.disable and monotonic() - self._line[0] >= LINE_SECONDS:
            self._print(position, total)

    def _print(self, position: float, total: float) -> None:
        """Print a line, with the time left at the pace since the previous line."""
        now, (began, before) = monotonic(), self._line
        self._line = now, position
        remaining_seconds = (
            (now - began) * (total - position) / (position - before) if position > before else None
        )
        complain(
            f"{self._label}: {position:,.0f} of {total:,.0f} {self._unit},"
            f" left: {duration(remaining_seconds)}"
        )
