"""Unix signals as messages to the main thread.

A Python signal handler runs between two bytecodes of the main thread, which may hold a lock at that
moment: `threading.Event.set` in a handler waits for the lock of the `wait` that it interrupted. So
the handlers do nothing, and the interpreter writes each signal's number to a socket
(`signal.set_wakeup_fd`), which the main thread reads.
"""

from __future__ import annotations

import select
import signal
import socket
from collections.abc import Iterable, Sequence
from types import FrameType


class SignalInbox:
    """Receives ``signals`` from its creation on; for the main thread."""

    def __init__(self, signals: Iterable[signal.Signals]) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._signals = frozenset(signals)
        # If a burst fills the socket, only repetitions are lost.
        self._before = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        self._handlers = {number: signal.signal(number, _ignore) for number in self._signals}

    def wait(self, seconds: float) -> Sequence[signal.Signals]:
        """The signals that have arrived, each once; waits at most ``seconds`` for the first."""
        if not select.select([self._reader], [], [], seconds)[0]:
            return []
        numbers = set(self._reader.recv(4096))
        return sorted(number for number in self._signals if number in numbers)

    def close(self) -> None:
        """Restore the previous handlers and wakeup descriptor."""
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._before)
        self._reader.close()
        self._writer.close()


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """Let the interpreter write the number to the socket."""
