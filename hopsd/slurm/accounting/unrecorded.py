"""Jobs that slurmdbd has not heard of: slurmctld changes none of them before it has.

While slurmdbd hangs, slurmctld waits five seconds for each update of such a job, and then refuses
it (22.05, ESLURM_JOB_SETTING_DB_INX). These are the jobs that were submitted or requeued since it
hangs, or a moment before. One wait tells, and the others are refused here until a pause is over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf

from hopsd.breaker import Breaker
from hopsd.errors import SlurmError
from hopsd.slurm.command import UNRECORDED

FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 6.0, 12.0

_MARGIN_SECONDS = 15.0
"""slurmctld tells slurmdbd of new jobs every five seconds, all in one message."""


class UnrecordedJobs:
    """Whether the update of a job is to be tried."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._breaker = Breaker("slurmdbd", FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS, clock)
        self._since = inf

    @contextmanager
    def update(self, submitted: float) -> Iterator[None]:
        """Within it, a job that was submitted or requeued at that time (epoch) is updated.

        Raises:
            SlurmError: slurmctld would wait for slurmdbd.
        """
        suspect = submitted >= self._since
        if suspect and (problem := self._breaker.refusal()):
            raise SlurmError(problem)
        try:
            yield
        except SlurmError as error:
            if UNRECORDED in str(error):
                self.note_silence(submitted, str(error))
            raise
        if suspect:
            self._since = inf
            self._breaker.note_answer()

    def note_silence(self, time: float, error: str) -> None:
        """slurmdbd had not recorded a job of that time (epoch), or did not answer at that time."""
        self._since = min(self._since, time - _MARGIN_SECONDS)
        self._breaker.note_silence(f"{UNRECORDED}: {error}" if UNRECORDED not in error else error)
