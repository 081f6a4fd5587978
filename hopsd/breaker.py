"""Keeps a tick from waiting for a server or a call that hangs.

A :class:`Breaker` refuses requests to a silent server for a while. :class:`LastAnswers` makes calls
in a thread, and a later tick uses the answer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future, wait
from typing import Generic, TypeVar

import structlog

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

MAX_KNOWN = 10_000

log = structlog.get_logger()


def call_in_background(call: Callable[[], T], name: str) -> Future[T]:
    """Make ``call`` in a thread called ``name`` and return a future for its result or error.

    The thread is a daemon, which does not keep the process alive, since the call may never return.
    """
    future: Future[T] = Future()

    def work() -> None:
        try:
            future.set_result(call())
        except Exception as error:  # Future.result() raises it again
            future.set_exception(error)

    threading.Thread(target=work, name=name, daemon=True).start()
    return future


class Breaker:
    """Says whether a request may be sent to a server now; thread-safe.

    After a time-out, requests are refused for ``first_pause`` seconds, and for twice as long after
    each further time-out in a row, up to ``longest_pause``. A server that hangs thus costs one
    short time-out, not one for each request.
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
        """Why the server does not answer; "" while it does."""

    def refusal(self) -> str:
        """Return why no request may be sent at this moment, "" if one may."""
        with self._lock:
            return self.problem if self._clock() < self._open_until else ""

    def note_answer(self) -> None:
        """Record that the server answered: requests are allowed again."""
        with self._lock:
            self._silences, self.problem, self._open_until = 0, "", float("-inf")

    def note_silence(self, error: str) -> None:
        """Record that the server did not answer within its time-out; ``error`` is the message."""
        with self._lock:
            pause = min(self._first_pause * 2.0**self._silences, self._longest_pause)
            self._silences = min(self._silences + 1, 30)
            self._open_until = self._clock() + pause
            self.problem = f"{self._server} does not answer ({error})"
        log.warning("silence", server=self._server, problem=error, again_in_seconds=pause)


class LastAnswers(Generic[K, T]):
    """The last answers, by key, of calls that cannot be interrupted.

    Such calls read a file system or the system's user database. They are made in a thread, one at a
    time; the class is not thread-safe. A caller waits at most ``seconds`` for one call, ``in_all``
    seconds for many in a row, and a ``share`` of the time in the long run. If a call takes longer,
    or an earlier one is still running, the last answer is returned.
    """

    def __init__(self, seconds: float, in_all: float, share: float = 0.1) -> None:
        self._seconds, self._in_all, self._share = seconds, in_all, share
        self._answers_by_key: dict[K, T] = {}
        self._call: Future[T] | None = None
        self._allowance, self._last = in_all, time.monotonic()

    def get(self, key: K, ask: Callable[[], T]) -> T | None:
        """Return the answer of ``ask``, or its last one for ``key``; None if there is none yet.

        Raises:
            Exception: the error of ``ask``, if it was raised in time.
        """
        if self._call is not None and not self._call.done():
            return self._answers_by_key.get(key)
        if len(self._answers_by_key) >= MAX_KNOWN:
            self._answers_by_key.clear()

        def work() -> T:
            answer = self._answers_by_key[key] = ask()
            return answer

        begin = time.monotonic()
        self._allowance = min(self._in_all, self._allowance + self._share * (begin - self._last))
        self._call = call_in_background(work, "answer")
        finished, _ = wait((self._call,), min(self._seconds, self._allowance))
        self._last = time.monotonic()
        self._allowance = max(0.0, self._allowance - (self._last - begin))
        return self._call.result() if finished else self._answers_by_key.get(key)
