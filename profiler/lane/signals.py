"""Delays signals while a trial's state is incomplete, since the script's handlers may save it."""

from __future__ import annotations

import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import FrameType
from typing import Any

from hops_profiler.lane.settings import SIGNALS


class DelayedSignals:
    """Keeps the script's handlers from running; created and released in the main thread.

    ``pending`` are signals that have arrived, in order.
    """

    def __init__(self) -> None:
        self.pending: deque[int] = deque()
        self._open = False
        self._main = threading.get_ident()
        self._handlers: dict[int, Callable[[int, FrameType | None], Any]] = {}
        for number in SIGNALS:
            handler = signal.getsignal(number)
            if callable(handler):
                self._handlers[number] = handler
                signal.signal(number, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.pending.append(number)
        if self._open:
            for signal_number in self._take_pending():
                self._handlers[signal_number](signal_number, frame)

    def open(self) -> None:
        """Let handlers run in the main thread from now on; may be called in any thread."""
        self._open = True
        for number in self._take_pending():
            signal.pthread_kill(self._main, number)

    def release(self, number: int | None = None) -> None:
        """Restore the script's handlers, and raise the pending signals and signal ``number``."""
        for signal_number, handler in self._handlers.items():
            # The script may have set another handler since.
            if signal.getsignal(signal_number) == self._note:
                signal.signal(signal_number, handler)
        for pending in dict.fromkeys([*self._take_pending(), *([number] if number else [])]):
            signal.raise_signal(pending)

    def _take_pending(self) -> Iterator[int]:
        """Yield each pending signal once, to whichever thread asks."""
        with suppress(IndexError):
            while True:
                yield self.pending.popleft()
