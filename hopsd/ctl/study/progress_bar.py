"""Progress with the time left, on standard error: a bar, or now and then a line in a log file."""

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
"""Between two lines where there is no terminal: a run of seconds prints none, one of a night 72."""


class ProgressBar:
    """A bar while the ``with`` lasts, which leaves nothing behind.

    Where standard error is no terminal, what takes long prints a line every ten minutes.
    """

    def __init__(self, label: str, unit: str = "") -> None:
        """``label`` is under way; ``unit``: what is counted, as ``jobs``."""
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
            redirect_stdout=sys.stdout.isatty(),  # what goes to a file stays out of this
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
        """``position`` of ``total`` are done."""
        self._progress.update(self._task, completed=position, total=total)
        if self._progress.disable and monotonic() - self._line[0] >= LINE_SECONDS:
            self._print(position, total)

    def _print(self, position: float, total: float) -> None:
        """A line, with the time left at the pace since the line before."""
        now, (began, before) = monotonic(), self._line
        self._line = now, position
        remaining_seconds = (
            (now - began) * (total - position) / (position - before) if position > before else None
        )
        complain(
            f"{self._label}: {position:,.0f} of {total:,.0f} {self._unit},"
            f" left: {duration(remaining_seconds)}"
        )
