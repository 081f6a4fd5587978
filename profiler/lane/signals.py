"""Signals wait while a trial's state is not all there: the script's handlers may save it."""

from __future__ import annotations

import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import FrameType
from typing import Any

from hops_profiler.lane.settings import SIGNALS


class HeldSignals:
    """Keeps the script's handlers from running; made and released by the main thread."""

    def __init__(self) -> None:
        self.came: deque[int] = deque()
        self._open = False
        self._main = threading.get_ident()
        self._handlers: dict[int, Callable[[int, FrameType | None], Any]] = {}
        for number in SIGNALS:
            handler = signal.getsignal(number)
            if callable(handler):
                self._handlers[number] = handler
                signal.signal(number, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.came.append(number)
        if self._open:
            for came in self._taken():
                self._handlers[came](came, frame)

    def open(self) -> None:
        """Let handlers run in the main thread from now on; for any thread."""
        self._open = True
        for came in self._taken():
            signal.pthread_kill(self._main, came)

    def release(self, number: int | None = None) -> None:
        """Give the script its handlers back, with the signals that came, and ``number``."""
        for each, handler in self._handlers.items():
            if signal.getsignal(each) == self._note:  # else the script has set another since
                signal.signal(each, handler)
        for came in dict.fromkeys([*self._taken(), *([number] if number else [])]):
            signal.raise_signal(came)

    def _taken(self) -> Iterator[int]:
        """Each signal that came, once, whichever thread asks."""
        with suppress(IndexError):
            while True:
                yield self.came.popleft()
