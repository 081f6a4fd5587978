"""The time of day by slurmctld's clock, so that hops' recorded times agree with Slurm's."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import structlog

from hopsd.errors import SlurmError
from hopsd.slurm.command import SlurmCommands

log = structlog.get_logger()

TOLERANCE_SECONDS = 2.0
"""slurmctld reports whole seconds, so smaller differences of the machine's clock are ignored."""

CHECK_SECONDS = 60.0
_TIMEOUT_SECONDS = 4.0
_SERVER_TIME = re.compile(r"^sdiag output at .*\((\d+)\)", re.MULTILINE)


class SlurmClock:
    """Tells the time, in seconds since the epoch. Setting the clock of hopsd's machine does not
    affect the times that hops records: between two checks only the monotonic clock is read.
    """

    def __init__(
        self,
        commands: SlurmCommands,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._commands = commands.with_time_out(_TIMEOUT_SECONDS)
        self._wall = wall
        self._monotonic = monotonic
        self._base: float | None = None  # the time minus the monotonic clock
        self._check_at = float("-inf")
        self._offset = 0.0

    def __call__(self) -> float:
        ticks = self._monotonic()
        if ticks >= self._check_at:
            self._check()
        return self._wall() if self._base is None else self._base + self._monotonic()

    def _check(self) -> None:
        """Compare the machine's clock with slurmctld's; keep the last offset if it is silent."""
        self._check_at = self._monotonic() + CHECK_SECONDS
        try:
            match = _SERVER_TIME.search(self._commands.run("sdiag"))
        except SlurmError:
            return
        if match is None:
            return
        wall, ticks = self._wall(), self._monotonic()
        offset = wall - (int(match[1]) + 0.5)
        offset = 0.0 if abs(offset) <= TOLERANCE_SECONDS else offset
        self._base = wall - offset - ticks
        if round(offset) != round(self._offset):
            log.warning(
                "clock", ahead_of_slurmctld_seconds=round(offset), did="slurmctld's clock is used"
            )
        self._offset = offset
