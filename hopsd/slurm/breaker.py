"""One breaker for a server that may hang: one silence, one short time-out, tried again later."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import structlog

from hopsd.errors import SlurmUnavailableError
from hopsd.slurm.command import SlurmCommands

log = structlog.get_logger()

TIMEOUT_SECONDS = 4.0
FIRST_PAUSE_SECONDS = 30.0
MAX_PAUSE_SECONDS = 600.0


class Breaker:
    """Runs the commands that ask one server; thread-safe.

    After a silence the server is left alone for :data:`FIRST_PAUSE_SECONDS`, twice as long after
    each further one, and whoever asks meanwhile is refused at once: a server that hangs costs one
    short time-out, not one for each question.
    """

    def __init__(
        self,
        server: str,
        commands: SlurmCommands,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._server = server
        self._commands = commands.within(TIMEOUT_SECONDS)
        self._clock = clock
        self._lock = threading.Lock()
        self._silences = 0
        self._closed_until = float("-inf")
        self.problem = ""
        """Why the server is not asked now; "" while it answers."""

    def run(self, *arguments: str) -> str:
        """As :meth:`SlurmCommands.run`.

        Raises:
            SlurmUnavailableError: the server does not answer, or was silent a short while ago.
            SlurmError: it refused.
        """
        with self._lock:
            if self._clock() < self._closed_until:
                raise SlurmUnavailableError(self.problem)
        try:
            said = self._commands.run(*arguments)
        except SlurmUnavailableError as error:
            self._note_silence(error)
            raise
        with self._lock:
            self._silences, self.problem = 0, ""
        return said

    def _note_silence(self, error: SlurmUnavailableError) -> None:
        with self._lock:
            pause = min(FIRST_PAUSE_SECONDS * 2.0**self._silences, MAX_PAUSE_SECONDS)
            self._silences = min(self._silences + 1, 30)
            self._closed_until = self._clock() + pause
            self.problem = f"{self._server} does not answer ({error})"
        log.warning("silence", server=self._server, problem=str(error), again_in_seconds=pause)
