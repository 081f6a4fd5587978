"""Starts a tick early when a job arrived or GPUs became free."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

from hopsd.errors import SlurmError
from hopsd.model.ids import JobId
from hopsd.slurm.probe.activity import Activity

SHARE = 4.0
"""The pause after a tick, as a multiple of its duration, which only a session ends early: on a
large cluster with a submission every second hopsd must not run all the time."""
SILENCE_SECONDS = 30.0
"""The pause after slurmctld did not answer; the regular ticks notice when it is back."""


class Waker:
    """Compares slurmctld's counters with those before the last tick."""

    def __init__(
        self,
        read_activity: Callable[[], Activity],
        clock: Callable[[], float] = time.monotonic,
        sessions: Callable[[], Collection[JobId]] = frozenset,
    ) -> None:
        """``sessions`` asks Slurm which sessions wait."""
        self._read = read_activity
        self._sessions = sessions
        self._clock = clock
        self._last: Activity | None = None
        self._known_submissions = -1
        self._next = self._silent_until = self._paused_until = float("-inf")

    def _ask(self) -> Activity | None:
        """Read the counters; None for a while after a silence, which cost a whole time-out."""
        self._last = None
        if self._clock() >= self._silent_until:
            try:
                self._last = self._read()
            except SlurmError:
                self._silent_until = self._clock() + SILENCE_SECONDS
        return self._last

    @property
    def pausing(self) -> bool:
        """Whether the last tick took so long that no other may start early yet."""
        return self._clock() < self._paused_until

    def due(self, seconds: float, document: dict[str, Any]) -> bool:
        """Whether to start a tick now. Asks slurmctld every ``seconds`` at most, never if 0.

        ``document`` is the status as of the last tick. A job that arrived is worth a tick if GPUs
        were idle or it is a session, for which others make room; a job that left, if jobs waited.
        """
        now = self._clock()
        if not seconds or now < self._next or document["mode"] != "active":
            return False
        self._next = now + seconds
        last, activity = self._last, self._ask()
        if last is None or activity is None:
            return False
        known_submissions, self._known_submissions = self._known_submissions, activity.submitted
        has_arrivals, has_departures = (
            activity.submitted != last.submitted,
            activity.ended != last.ended,
        )
        idle = any(node["idle"] and node["usable"] for node in document["nodes"])
        if self.pausing:
            self._last = last  # changes during a pause count at its end
        elif (has_arrivals and idle) or (has_departures and document["waiting"]):
            return True
        return activity.submitted != known_submissions and self._session_came(document)

    def _session_came(self, document: dict[str, Any]) -> bool:
        """Whether a session waits that the last tick did not see."""
        try:
            waiting = set(self._sessions())
        except SlurmError:
            return False
        return bool(waiting - {row["id"] for row in document["waiting"]})

    @contextmanager
    def look(self, seconds: float) -> Iterator[None]:
        """Context manager around a tick, which does not see changes meanwhile; ``seconds`` as in
        :meth:`due`.
        """
        begin = self._clock()
        if seconds and (activity := self._ask()) is not None:
            self._known_submissions = activity.submitted
        yield
        self._paused_until = self._clock() + SHARE * (self._clock() - begin)
