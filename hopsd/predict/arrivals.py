"""Jobs to come: how many an hour, and what they are like, as the last hours had them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from hopsd.model.arrays import Floats, Ints

WINDOW_SECONDS = 2 * 3600.0
"""Submissions of so long say how many come an hour."""

LEAST_SECONDS = 1800.0
"""Seen for less than this, a cluster has no rate of arrivals yet: none are expected."""

KEPT = 4096
"""Submissions kept at most."""

MOST = 512
"""Jobs to come that a playout has at most."""


@dataclass(slots=True)
class Arrivals:
    """Times of the last submissions, in any clock. ``since``: when watching them began."""

    since: float | None = None
    _times: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))

    def note(self, at: float) -> None:
        """A job was submitted."""
        if self.since is None:
            self.since = at
        self._times.append(at)

    def watch(self, now: float) -> None:
        """Submissions are watched from now on, if they were not before."""
        if self.since is None:
            self.since = now

    def per_second(self, now: float) -> float:
        """Submissions a second; 0 where too little is known."""
        if self.since is None or now - self.since < LEAST_SECONDS:
            return 0.0
        span = min(WINDOW_SECONDS, now - self.since)
        return sum(at > now - span for at in self._times) / span

    def drawn(
        self, now: float, horizon: float, jobs: int, samples: int, rng: np.random.Generator
    ) -> tuple[Floats, Ints]:
        """Seconds from ``now`` of the jobs to come, (samples, most); infinity: none. And which of
        the ``jobs`` present each is like.
        """
        rate = self.per_second(now)
        # As they came for so long, they go on for so long: bursts end.
        horizon = min(horizon, now - self.since) if self.since is not None else 0.0
        most = min(MOST, int(np.ceil(rate * horizon * 1.5)) + 1) if rate and jobs else 0
        gaps = rng.exponential(1.0 / rate if rate else np.inf, (samples, most))
        times = np.cumsum(gaps, axis=1)
        times[times > horizon] = np.inf
        return times, rng.integers(0, max(1, jobs), (samples, most))
