"""Keeps a tick from waiting for what hangs: a breaker for each server, tried again later, and
questions in threads, whose answers a later tick uses.
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


class LastAnswers(Generic[K, T]):
    """What a call that cannot be interrupted, such as one of a file system or of the system's
    accounts, says of each key. It is made in a thread, one at a time; not thread-safe.

    ``seconds`` are waited for one call, ``in_all`` for many in a row, and ``share`` of the time in
    the long run. Of what takes longer, and while it does, the last answer holds.
    """

    def __init__(self, seconds: float, in_all: float, share: float = 0.1) -> None:
        self._seconds, self._in_all, self._share = seconds, in_all, share
        self._answers_by_key: dict[K, T] = {}
        self._call: Future[T] | None = None
        self._allowance, self._last = in_all, time.monotonic()

    def get(self, key: K, ask: Callable[[], T]) -> T | None:
        """The answer of ``ask``, or its last one for ``key``; None: there is none yet.

        Raises:
            Exception: what ``ask`` raised in time.
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
