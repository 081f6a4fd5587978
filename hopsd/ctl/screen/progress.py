"""Progress with the time left, on standard error, for whoever sits at a terminal."""

from __future__ import annotations

import sys
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.progress import TimeElapsedColumn as Elapsed
from rich.text import Text

from hopsd.ctl.terminal import printable


class Bar:
    """A bar while the ``with`` lasts, which leaves nothing behind.

    Programs and log files, whose standard error is no terminal, see nothing of it.
    """

    def __init__(self, what: str, unit: str = "") -> None:
        """``what`` is under way; ``unit``: what is counted, as ``jobs``."""
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
        self._task = self._progress.add_task(Text(printable(what)).markup, total=None)

    def __enter__(self) -> Bar:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def at(self, done: float, total: float) -> None:
        """``done`` of ``total`` are done."""
        self._progress.update(self._task, completed=done, total=total)
