"""Jobs that slurmdbd has not recorded yet, which slurmctld therefore refuses to change.

While slurmdbd hangs, slurmctld waits five seconds for each update of such a job, and then refuses
it (22.05, ESLURM_JOB_SETTING_DB_INX). This affects the jobs that were submitted or requeued since
slurmdbd hung, or a moment before. After one such wait, updates of the other jobs are refused here
until a pause is over. The update of a new job gets an even shorter time-out: slurmctld may still
carry it out later, but the job stays held either way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf

import structlog

from hopsd.errors import SlurmError
from hopsd.model.ids import JobId
from hopsd.slurm.command import NO_ANSWER, UNRECORDED

log = structlog.get_logger()

PAUSE_SECONDS = 6.0
_SHORT_PAUSE_SECONDS = 0.5
"""The pause after a job's later refusals: no second wait in one tick, and the others go on in the
next."""

OWN_PAUSE_SECONDS = 30.0
MAX_OWN_PAUSE_SECONDS = 600.0
"""The refused job itself pauses for longer than the others, twice as long each time, so that others
are tried first. Three jobs that slurmctld never updates again delayed all new jobs by a minute."""

NEW_SECONDS = 15.0
"""slurmctld reports new jobs to slurmdbd every five seconds, all in one message."""

UPDATE_SECONDS = 2.0
"""The update of a new job normally takes some milliseconds. It is tried again only after
slurmctld's own five seconds: the pause is longer than what remains of them."""


@dataclass(slots=True)
class _Refusals:
    """The refusals of one job: how many ``times``, and ``until`` when it is not tried again."""

    times: int
    until: float
    problem: str


class UnrecordedJobs:
    """Decides whether the update of a job may be tried."""

    def __init__(
        self, epoch: Callable[[], float], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """``epoch`` is Slurm's clock."""
        self._epoch = epoch
        self._clock = clock
        self._since = inf
        self._until = -inf
        self._problem = ""
        self._refusals: dict[JobId, _Refusals] = {}

    @contextmanager
    def update(self, job: JobId, submitted: float) -> Iterator[None]:
        """Context manager in which the caller updates ``job``, ``submitted`` or requeued then
        (epoch).

        Raises:
            SlurmError: slurmctld would wait for slurmdbd.
        """
        suspect = submitted >= self._since
        if suspect and self._clock() < self._until:
            raise SlurmError(self._problem)
        before = self._refusals.get(job)
        if before is not None and self._clock() < before.until:
            raise SlurmError(before.problem)
        try:
            yield
        except SlurmError as error:
            silent = NO_ANSWER in str(error) and self.may_wait(submitted)
            if not silent and UNRECORDED not in str(error):
                raise
            raise SlurmError(self._note_refusal(job, submitted, str(error))) from error
        self._refusals.pop(job, None)
        if suspect:
            self._since = inf
            # Other jobs' first refusal may have had the same cause.
            for entry in self._refusals.values():
                entry.until = -inf if entry.times == 1 else entry.until

    def _note_refusal(self, job: JobId, submitted: float, error: str) -> str:
        """Record the refusal; a slurmctld killed at the wrong moment never updates a job again
        (22.05), so the pauses grow.
        """
        times = self._refusals[job].times if job in self._refusals else 0
        seconds = _SHORT_PAUSE_SECONDS if times else PAUSE_SECONDS
        problem = self.note_silence(submitted, error, seconds)
        pause = min(OWN_PAUSE_SECONDS * 2.0 ** min(times, 30), MAX_OWN_PAUSE_SECONDS)
        self._refusals[job] = _Refusals(times + 1, self._clock() + pause, problem)
        return problem

    def keep(self, jobs: Collection[JobId]) -> None:
        """Forget all but ``jobs``."""
        self._refusals = {job: entry for job, entry in self._refusals.items() if job in jobs}

    def may_wait(self, submitted: float) -> bool:
        """Whether slurmdbd may not have recorded a job ``submitted`` at that time (epoch) yet."""
        return self._epoch() - submitted < NEW_SECONDS or submitted >= self._since

    def note_silence(self, at: float, error: str, seconds: float = PAUSE_SECONDS) -> str:
        """Note that slurmdbd was silent at that time (epoch), or had not recorded a job of then.

        Jobs that are as new are refused for ``seconds``. Returns the message of these refusals.
        """
        self._since = min(self._since, at - NEW_SECONDS)
        self._problem = error if UNRECORDED in error else f"{UNRECORDED}: {error}"
        self._until = self._clock() + seconds
        log.warning("silence", server="slurmdbd", problem=self._problem, again_in_seconds=seconds)
        return self._problem
