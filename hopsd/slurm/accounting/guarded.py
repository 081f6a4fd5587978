"""The commands that ask one of Slurm's servers, behind a breaker."""

from __future__ import annotations

import time
from collections.abc import Callable

from hopsd.breaker import Breaker
from hopsd.errors import SlurmUnavailableError
from hopsd.slurm.command import SlurmCommands

TIMEOUT_SECONDS = 4.0
FIRST_PAUSE_SECONDS = 30.0
MAX_PAUSE_SECONDS = 600.0


class GuardedCommands:
    """Runs the commands that ask one server; thread-safe."""

    def __init__(
        self,
        server: str,
        commands: SlurmCommands,
        clock: Callable[[], float] = time.monotonic,
        *,
        on_silence: Callable[[str], object] = lambda _: None,
    ) -> None:
        """``on_silence`` is told of each silence, in words."""
        self._commands = commands.within(TIMEOUT_SECONDS)
        self._on_silence = on_silence
        self._breaker = Breaker(server, FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS, clock)

    @property
    def problem(self) -> str:
        """Why the server is not asked now; "" while it answers."""
        return self._breaker.problem

    def run(self, *arguments: str) -> str:
        """As :meth:`SlurmCommands.run`.

        Raises:
            SlurmUnavailableError: the server does not answer, or was silent a short while ago.
            SlurmError: it refused.
        """
        if refusal := self._breaker.refusal():
            raise SlurmUnavailableError(refusal)
        try:
            output = self._commands.run(*arguments)
        except SlurmUnavailableError as error:
            self._breaker.note_silence(str(error))
            self._on_silence(str(error))
            raise
        self._breaker.note_answer()
        return output
