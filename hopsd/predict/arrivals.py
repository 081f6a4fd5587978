"""Jobs to come: their rate and likeness follow the submissions of the last hours."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from hopsd.model.arrays import Floats, Ints

WINDOW_SECONDS = 2 * 3600.0
"""Submissions of this window give the rate of arrivals."""

MIN_WATCH_SECONDS = 1800.0
"""A cluster watched for less than this has no rate yet: no arrivals are drawn."""

SUBMISSIONS_MAX = 4096
"""Submissions kept."""

ARRIVALS_MAX = 512
"""Jobs to come per playout."""


@dataclass(slots=True)
class Arrivals:
    """Times of the last submissions, in any clock. ``since``: when watching them began."""

    since: float | None = None
    _times: deque[float] = field(default_factory=lambda: deque(maxlen=SUBMISSIONS_MAX))

    def note(self, time: float) -> None:
        """A job was submitted."""
        if self.since is None:
            self.since = time
        self._times.append(time)

    def watch(self, now: float) -> None:
        """Start watching submissions, unless already started."""
        if self.since is None:
            self.since = now

    def per_second(self, now: float) -> float:
        """Submissions per second; 0 while the watch is too short."""
        if self.since is None or now - self.since < MIN_WATCH_SECONDS:
            return 0.0
        span = min(WINDOW_SECONDS, now - self.since)
        return sum(time > now - span for time in self._times) / span

    def draw(
        self, now: float, horizon: float, jobs: int, samples: int, rng: np.random.Generator
    ) -> tuple[Floats, Ints]:
        """Seconds from ``now`` of the jobs to come (samples, count), infinity: none; and which of
        the present ``jobs`` each resembles.
        """
        rate = self.per_second(now)
        # Arrivals continue for as long as they were watched: bursts end.
        horizon = min(horizon, now - self.since) if self.since is not None else 0.0
        count = min(ARRIVALS_MAX, int(np.ceil(rate * horizon * 1.5)) + 1) if rate and jobs else 0
        gaps = rng.exponential(1.0 / rate if rate else np.inf, (samples, count))
        times = np.cumsum(gaps, axis=1)
        times[times > horizon] = np.inf
        return times, rng.integers(0, max(1, jobs), (samples, count))
