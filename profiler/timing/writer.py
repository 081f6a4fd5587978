"""Writes reports in the background, as storage may be slow or hang."""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from hops_profiler.timing import report


class Writer:
    """Writes one report at a time, and only the newest, which includes all earlier ones."""

    def __init__(self) -> None:
        self._next: tuple[str, str, Mapping[str, Any]] | None = None
        self._task: Callable[[], None] | None = None
        self._busy = False
        self._wake = threading.Condition()
        self._works = False

    def write(self, folder: str, name: str, content: Mapping[str, Any]) -> None:
        """Write a report in the background; returns at once. Write errors are ignored."""
        with self._wake:
            self._next = folder, name, content
            if not self._begin():
                letter, self._next = self._next, None
                _write(letter)

    def do(self, task: Callable[[], None]) -> None:
        """Run ``task`` in the background. A later task may replace it before it runs."""
        with self._wake:
            self._task = task
            self._begin()

    def finish(self, seconds: float) -> None:
        """Wait until everything is written, but at most ``seconds``."""
        with self._wake:
            self._wake.wait_for(lambda: not (self._next or self._task or self._busy), seconds)

    def _begin(self) -> bool:
        """Wake the thread; False if none can be started (limit, or interpreter shutdown)."""
        self._wake.notify_all()
        if not self._works:
            try:
                # `threading.Thread` would wait until the new thread has run.
                _thread.start_new_thread(self._work, ())
            except RuntimeError:
                return False
            self._works = True
        return True

    def _work(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._next or self._task)
                letter, self._next = self._next, None
                task, self._task = self._task, None
                self._busy = True
            if task is not None:
                task()
            _write(letter)
            with self._wake:
                self._busy = False
                self._wake.notify_all()


def _write(letter: tuple[str, str, Mapping[str, Any]] | None) -> None:
    # On a full disk or a lost mount, nothing is lost: the next report includes this one.
    with suppress(OSError):
        if letter is not None:
            report.write(*letter)
