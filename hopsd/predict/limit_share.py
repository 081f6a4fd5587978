"""Learns from ended jobs which share of its time limit a job uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, isfinite, log, sqrt
from statistics import NormalDist
from typing import Any

import numpy as np

from hopsd.model.arrays import Floats
from hopsd.predict.strata import normals, shares

USUAL_SHARE, USUAL_SPREAD = 0.4, 0.7
"""Median share and standard deviation of ln(share) before any job has ended: users ask for two to
three times what they need.
"""

PRIOR_JOBS = 5.0
"""Weight of the usual share, in jobs."""

MAX_JOBS = 500.0
"""Maximum total weight, in jobs: older jobs count less, so that the current use dominates."""

MIN_SHARE = 1e-4

_Z = np.linspace(-4.0, 4.0, 321)
_CDF = np.array([NormalDist().cdf(z) for z in _Z.tolist()])


@dataclass(slots=True)
class LimitShares:
    """Moments of ln(share of the limit) over ended jobs."""

    jobs: float = PRIOR_JOBS
    total: float = PRIOR_JOBS * log(USUAL_SHARE)
    squares: float = PRIOR_JOBS * (log(USUAL_SHARE) ** 2 + USUAL_SPREAD**2)

    def note(self, share: float) -> None:
        """Note that a job ended after this share of its limit."""
        if not isfinite(share) or share <= 0.0:
            return
        value = log(min(max(share, MIN_SHARE), 1.0))
        keep = min(1.0, (MAX_JOBS - 1.0) / self.jobs)
        self.jobs = self.jobs * keep + 1.0
        self.total = self.total * keep + value
        self.squares = self.squares * keep + value * value

    def as_dict(self) -> dict[str, Any]:
        """The moments that survive a restart, as JSON."""
        return {"jobs": self.jobs, "total": self.total, "squares": self.squares}

    def restore(self, state: object) -> None:
        """Restore from :meth:`as_dict`; anything that is not moments of shares is skipped."""
        if not isinstance(state, Mapping):
            return
        moments: list[Any] = [state.get(name) for name in ("jobs", "total", "squares")]
        if not all(isinstance(moment, float | int) and isfinite(moment) for moment in moments):
            return
        jobs, total, squares = moments
        if not PRIOR_JOBS <= jobs <= MAX_JOBS or not jobs * log(MIN_SHARE) <= total <= 0.0:
            return
        if -1e-6 <= squares / jobs - (total / jobs) ** 2 <= log(MIN_SHARE) ** 2:
            self.jobs, self.total, self.squares = jobs, total, squares

    @property
    def median(self) -> float:
        return exp(self.total / self.jobs)

    @property
    def spread(self) -> float:
        """Standard deviation of the logarithm."""
        mean = self.total / self.jobs
        return sqrt(max(self.squares / self.jobs - mean * mean, 1e-4))

    def log_likelihood(self, share: Floats) -> Floats:
        """Log-likelihood that a job was given a limit of which it uses this share, up to a
        constant; minus infinity for shares above 1.
        """
        deviation = (np.log(np.maximum(share, MIN_SHARE)) - self.total / self.jobs) / self.spread
        likelihood: Floats = np.where(share <= 1.0, -0.5 * deviation * deviation, -np.inf)
        return likelihood

    def draw(self, ran: Floats, samples: int, rng: np.random.Generator) -> Floats:
        """Draw final shares (samples, jobs) of jobs that have already run for the share ``ran``
        (jobs,) of their limits: at least that, at most 1. The uncertainty of the mean is drawn,
        too, once per sample for all jobs.
        """
        spread = self.spread
        mean = self.total / self.jobs + spread / sqrt(self.jobs) * normals(samples, 1, rng)
        low = np.interp((np.log(np.clip(ran, MIN_SHARE, 1.0)) - mean) / spread, _Z, _CDF)
        high = np.interp(-mean / spread, _Z, _CDF)
        u = low + shares(samples, len(ran), rng) * np.maximum(high - low, 0.0)
        share = np.exp(mean + spread * np.interp(u, _CDF, _Z))
        clipped: Floats = np.clip(share, np.minimum(ran * 1.001, 1.0), 1.0)
        return clipped
