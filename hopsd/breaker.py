"""Keeps a tick from waiting for a server that hangs: a breaker for each server, tried again
later, and questions in threads, whose answers a later tick uses.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

import structlog

log = structlog.get_logger()

T = TypeVar("T")


def call_in_background(call: Callable[[], T], name: str) -> Future[T]:
    """The result of ``call``, or its error, once a thread of that name has made it. The thread
    does not keep the process alive: what it waits for may never answer.
    """
    future: Future[T] = Future()

    def work() -> None:
        try:
            future.set_result(call())
        except Exception as error:  # raised where the result is asked for
            future.set_exception(error)

    threading.Thread(target=work, name=name, daemon=True).start()
    return future


class Breaker:
    """Says whether a server may be asked now; thread-safe.

    After a silence the server is left alone for ``first_pause`` seconds, twice as long after each
    further one, up to ``longest_pause``. Whoever asks meanwhile is refused at once: a server that
    hangs costs one short time-out, not one for each question.
    """

    def __init__(
        self,
        server: str,
        first_pause: float,
        longest_pause: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._server = server
        self._first_pause = first_pause
        self._longest_pause = longest_pause
        self._clock = clock
        self._lock = threading.Lock()
        self._silences = 0
        self._open_until = float("-inf")
        self.problem = ""
        """Why the server is not asked now; "" while it answers."""

    def refusal(self) -> str:
        """Why the server is not to be asked at this moment; "" if it is."""
        with self._lock:
            return self.problem if self._clock() < self._open_until else ""

    def note_answer(self) -> None:
        """The server answered: it may be asked again at any time."""
        with self._lock:
            self._silences, self.problem, self._open_until = 0, "", float("-inf")

    def note_silence(self, error: str) -> None:
        """The server did not answer within its time-out, as ``error`` says."""
        with self._lock:
            pause = min(self._first_pause * 2.0**self._silences, self._longest_pause)
            self._silences = min(self._silences + 1, 30)
            self._open_until = self._clock() + pause
            self.problem = f"{self._server} does not answer ({error})"
        log.warning("silence", server=self._server, problem=error, again_in_seconds=pause)
