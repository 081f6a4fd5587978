"""Writes reports beside the training: storage may be slow, or hang."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from hops_profiler.timing import report


class Writer:
    """One at a time, and the newest only: a report carries all that earlier ones would have."""

    def __init__(self) -> None:
        self._next: tuple[str, str, Mapping[str, Any]] | None = None
        self._busy = False
        self._wake = threading.Condition()
        self._thread: threading.Thread | None = None

    def write(self, folder: str, name: str, content: Mapping[str, Any]) -> None:
        """Returns at once. What cannot be written is not told."""
        with self._wake:
            self._next = folder, name, content
            self._wake.notify_all()
            if self._thread is None:
                thread = threading.Thread(target=self._work, name="hops-report", daemon=True)
                try:
                    thread.start()
                    self._thread = thread
                except RuntimeError:  # no more threads, or the interpreter is about to end
                    self._write_next()

    def finish(self, seconds: float) -> None:
        """Wait until all is written, but no longer than that."""
        with self._wake:
            self._wake.wait_for(lambda: self._next is None and not self._busy, seconds)

    def _work(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._next is not None)
                letter, self._next, self._busy = self._next, None, True
            _write(letter)
            with self._wake:
                self._busy = False
                self._wake.notify_all()

    def _write_next(self) -> None:
        letter, self._next = self._next, None
        _write(letter)


def _write(letter: tuple[str, str, Mapping[str, Any]] | None) -> None:
    # Full disk, lost mount: the next report carries everything that this one would have.
    with suppress(OSError):
        if letter is not None:
            report.write(*letter)
