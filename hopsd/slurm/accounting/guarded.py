"""Runs the commands that query one of Slurm's servers, so that no tick waits long for an answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass

from hopsd.breaker import Breaker, call_in_background
from hopsd.errors import AnswerPendingError, SlurmUnavailableError
from hopsd.slurm.command import SlurmCommands

WAIT_SECONDS = 1.0
"""A tick waits this long for an answer. A later answer is used by the first tick after it."""

TIMEOUT_SECONDS = 10.0
"""A command that takes longer counts as unanswered."""

FIRST_PAUSE_SECONDS = 30.0
MAX_PAUSE_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class _Question:
    """A command that is running, or whose answer has not been fetched yet."""

    arguments: tuple[str, ...]
    output: Future[str]


class GuardedCommands:
    """Runs the commands that query one server, one at a time, behind a breaker; thread-safe."""

    def __init__(
        self,
        server: str,
        commands: SlurmCommands,
        clock: Callable[[], float] = time.monotonic,
        *,
        on_silence: Callable[[str], object] = lambda _: None,
    ) -> None:
        """``on_silence`` is called with the error after each silence, in the thread that asked."""
        self._server = server
        self._commands = commands.with_time_out(TIMEOUT_SECONDS)
        self._on_silence = on_silence
        self._breaker = Breaker(server, FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS, clock)
        self._lock = threading.Lock()
        self._question: _Question | None = None

    @property
    def problem(self) -> str:
        """Why the server is not asked now; "" while it answers."""
        return self._breaker.problem

    def run(self, *arguments: str) -> str:
        """As :meth:`SlurmCommands.run`, for at most :data:`WAIT_SECONDS`.

        Raises:
            AnswerPendingError: this command or an earlier one is still running; run the same
                command again later to get the answer.
            SlurmUnavailableError: the server does not answer, or was silent a short while ago.
            SlurmError: the server refused.
        """
        with self._lock:
            question, seconds = self._question, 0.0
            if question is None or (question.arguments != arguments and question.output.done()):
                if refusal := self._breaker.refusal():
                    raise SlurmUnavailableError(refusal)
                output = call_in_background(lambda: self._ask(arguments), self._server)
                question, seconds = _Question(arguments, output), WAIT_SECONDS
                self._question = question
        finished, _ = wait((question.output,), seconds)
        if not finished or question.arguments != arguments:
            raise AnswerPendingError(f"{self._server} has not answered yet")
        with self._lock:
            if self._question is question:
                self._question = None
        return question.output.result()

    def _ask(self, arguments: tuple[str, ...]) -> str:
        try:
            output = self._commands.run(*arguments)
        except SlurmUnavailableError as error:
            self._breaker.note_silence(str(error))
            self._on_silence(str(error))
            raise
        self._breaker.note_answer()
        return output
