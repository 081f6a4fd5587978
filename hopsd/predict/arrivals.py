"""Draws future jobs. Their rate follows the submissions of the last hours and, after some days of
watching, those of the same hour of the day; each resembles one of the present jobs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil, isfinite
from typing import Any

import numpy as np

from hopsd.model.arrays import Floats, Ints

WINDOW_SECONDS = 2 * 3600.0
"""Window of the submissions from which the rate of arrivals is computed."""

MIN_WATCH_SECONDS = 1800.0
"""A cluster watched for less than this has no rate of its own yet: unless hours of the day are
distinguished, no arrivals are drawn.
"""

MAX_SUBMISSIONS = 4096
"""Maximum number of submissions kept."""

MAX_ARRIVALS = 512
"""Maximum number of future jobs per playout."""

HOUR_SECONDS = 3600.0
HOURS = 24

HISTORY_SECONDS = 3 * 86400.0
"""Hours of the day are distinguished after the cluster was watched for this time."""

FORGET_SECONDS = 28 * 86400.0
"""Older observations lose weight beyond this total, so that the last weeks dominate."""

SHRINKAGE = 4.0
"""Weight in jobs of the mean in an hour's rate, and of the usual rate in that of the last hours."""


@dataclass(slots=True)
class Arrivals:
    """Learns the rate of submissions. Times are of any one clock; ``since`` is when watching began.
    ``counts`` and ``seconds`` (24,) are the submissions in each hour of the day (UTC), and how long
    each hour was watched.
    """

    since: float | None = None
    counts: Floats = field(default_factory=lambda: np.zeros(HOURS))
    seconds: Floats = field(default_factory=lambda: np.zeros(HOURS))
    _times: deque[float] = field(default_factory=lambda: deque(maxlen=MAX_SUBMISSIONS))
    _watched_until: float = 0.0

    def note(self, time: float) -> None:
        """Note that a job was submitted."""
        self.watch(time)
        self._times.append(time)
        self.counts[_hour(time)] += 1.0

    def watch(self, now: float) -> None:
        """Start watching submissions, or extend the watch until ``now``. If the clock was set back
        to before the watch began, it begins again.
        """
        if self.since is None or now < self.since:
            self.since = self._watched_until = now
        while self._watched_until < now:
            until = min(now, (self._watched_until // HOUR_SECONDS + 1.0) * HOUR_SECONDS)
            self.seconds[_hour(self._watched_until)] += until - self._watched_until
            self._watched_until = until
        if (total := float(self.seconds.sum())) > FORGET_SECONDS:
            self.counts *= FORGET_SECONDS / total
            self.seconds *= FORGET_SECONDS / total

    @property
    def by_hour(self) -> bool:
        """Whether hours of the day are distinguished."""
        return float(self.seconds.sum()) >= HISTORY_SECONDS

    def per_second(self, now: float) -> float:
        """Submissions per second at ``now``; 0 while the watch is too short."""
        return float(self._rates(now, 0.0)[1][0])

    def draw(
        self, now: float, horizon: float, jobs: int, samples: int, rng: np.random.Generator
    ) -> tuple[Floats, Ints]:
        """Draw the arrivals of future jobs in seconds from ``now`` (samples, count), infinity if
        there is none; and the index of the present job, of ``jobs``, that each resembles.
        """
        # Without a history, draw arrivals only for as long as they were watched: bursts end.
        if not self.by_hour:
            horizon = min(horizon, now - self.since) if self.since is not None else 0.0
        begins, rates = self._rates(now, horizon)
        ends = np.append(begins[1:], horizon)
        expected = np.append(0.0, np.cumsum(rates * (ends - begins)))
        total = float(expected[-1])
        count = min(MAX_ARRIVALS, ceil(total * 1.5) + 1) if total > 0.0 and jobs else 0
        turns = np.cumsum(rng.exponential(1.0, (samples, count)), axis=1)
        times = np.interp(turns, expected, np.append(begins, horizon), right=np.inf)
        return times, rng.integers(0, max(1, jobs), (samples, count))

    def _rates(self, now: float, horizon: float) -> tuple[Floats, Floats]:
        """Seconds from ``now`` at which each rate begins (the first is 0), and rates per second."""
        watched = 0.0 if self.since is None else now - self.since
        if watched < MIN_WATCH_SECONDS and not self.by_hour:
            return np.zeros(1), np.zeros(1)
        span = min(WINDOW_SECONDS, watched)
        recent = sum(now - span < time <= now for time in self._times)
        if not self.by_hour:
            return np.zeros(1), np.full(1, recent / span)
        steps = now + np.arange(0.0, horizon, HOUR_SECONDS)
        begins = np.append(now, (np.floor(steps / HOUR_SECONDS) + 1.0) * HOUR_SECONDS)
        begins = begins[begins - now <= horizon]
        usual = self._usual()
        expected = float(usual[_hours(np.linspace(now - span, now, HOURS))].mean()) * span
        level = (recent + SHRINKAGE) / (expected + SHRINKAGE)
        return begins - now, level * usual[_hours(begins)]

    def _usual(self) -> Floats:
        """Submissions per second in each hour of the day, shrunk towards the mean."""
        mean = float(self.counts.sum() / self.seconds.sum())
        usual: Floats = (
            mean * (self.counts + SHRINKAGE) / np.maximum(self.seconds * mean + SHRINKAGE, 1e-12)
        )
        return usual

    def as_dict(self) -> dict[str, Any]:
        """The history that survives a restart, as JSON."""
        return {"counts": self.counts.round(3).tolist(), "seconds": self.seconds.round(1).tolist()}

    def restore(self, state: object) -> None:
        """Restore from :meth:`as_dict`; anything else is skipped."""
        if not isinstance(state, Mapping):
            return
        lists = [state.get("counts"), state.get("seconds")]
        if all(isinstance(row, list) and len(row) == HOURS and _are_counts(row) for row in lists):
            self.counts, self.seconds = np.array(lists, dtype=np.float64)


def _are_counts(row: list[object]) -> bool:
    return all(isinstance(n, float | int) and isfinite(n) and n >= 0.0 for n in row)


def _hour(time: float) -> int:
    return int(time // HOUR_SECONDS) % HOURS


def _hours(times: Floats) -> Ints:
    hours: Ints = (times // HOUR_SECONDS).astype(np.int64) % HOURS
    return hours
