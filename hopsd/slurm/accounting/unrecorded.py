"""Jobs that slurmdbd has not heard of: slurmctld changes none of them before it has.

While slurmdbd hangs, slurmctld waits five seconds for each update of such a job, and then refuses
it (22.05, ESLURM_JOB_SETTING_DB_INX). These are the jobs that were submitted or requeued since it
hangs, or a moment before. One wait tells, and the others are refused here until a pause is over.
A new job's update is waited for even less: slurmctld carries it out later, or not, and the job
stays held either way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from math import inf

from hopsd.breaker import Breaker
from hopsd.errors import SlurmError
from hopsd.model.ids import JobId
from hopsd.slurm.command import NO_ANSWER, UNRECORDED

PAUSE_SECONDS = 6.0

OWN_PAUSE_SECONDS = 15.0, 600.0
"""The first and the longest pause of a job that was refused, longer than that of all: others are
tried first. Three that slurmctld never updates again delayed all new jobs by a minute."""

NEW_SECONDS = 15.0
"""slurmctld tells slurmdbd of new jobs every five seconds, all in one message."""

UPDATE_SECONDS = 2.0
"""The update of a new job takes some milliseconds otherwise. Tried again after slurmctld's own five
seconds: the pause is longer than the rest of them."""


class UnrecordedJobs:
    """Whether the update of a job is to be tried."""

    def __init__(
        self, epoch: Callable[[], float], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """``epoch``: Slurm's clock."""
        self._epoch = epoch
        self._clock = clock
        self._breaker = Breaker("slurmdbd", PAUSE_SECONDS, PAUSE_SECONDS, clock)
        self._since = inf
        self._own: dict[JobId, Breaker] = {}

    @contextmanager
    def update(self, job: JobId, submitted: float) -> Iterator[None]:
        """Within it, ``job``, submitted or requeued at that time (epoch), is updated.

        Raises:
            SlurmError: slurmctld would wait for slurmdbd.
        """
        suspect = submitted >= self._since
        problem = self._own[job].refusal() if job in self._own else ""
        if problem := problem or (self._breaker.refusal() if suspect else ""):
            raise SlurmError(problem)
        try:
            yield
        except SlurmError as error:
            silent = NO_ANSWER in str(error) and self.may_wait(submitted)
            if not silent and UNRECORDED not in str(error):
                raise
            raise SlurmError(self._note_refusal(job, submitted, str(error))) from error
        self._own.pop(job, None)
        if suspect:
            self._since = inf
            self._breaker.note_answer()

    def _note_refusal(self, job: JobId, submitted: float, error: str) -> str:
        """A slurmctld that was killed at the wrong moment never again updates a job (22.05): the
        others are tried before it is.
        """
        if job not in self._own:
            self._own[job] = Breaker(f"slurmdbd for job {job}", *OWN_PAUSE_SECONDS, self._clock)
        problem = self.note_silence(submitted, error)
        self._own[job].note_silence(problem)
        return problem

    def keep(self, jobs: Collection[JobId]) -> None:
        """Forget all but ``jobs``."""
        self._own = {job: breaker for job, breaker in self._own.items() if job in jobs}

    def may_wait(self, submitted: float) -> bool:
        """Whether slurmdbd may not have heard yet of a job of that time (epoch)."""
        return self._epoch() - submitted < NEW_SECONDS or submitted >= self._since

    def note_silence(self, at: float, error: str) -> str:
        """slurmdbd had not recorded a job of that time (epoch), or did not answer at that time.
        Returns what is said of it.
        """
        self._since = min(self._since, at - NEW_SECONDS)
        problem = error if UNRECORDED in error else f"{UNRECORDED}: {error}"
        self._breaker.note_silence(problem)
        return problem
