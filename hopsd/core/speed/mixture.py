"""Times with one or two modes: data from memory, or from storage (eq. 3)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hopsd.model.arrays import Floats

BINS_PER_DECADE = 24
SMALLEST_SECONDS = 1e-6
"""Where the bins of reported times begin: bin ``i`` begins at this times
``10 ** (i / BINS_PER_DECADE)``."""

BIN_WIDTH = 10.0 ** (1 / BINS_PER_DECADE)
"""Ratio of a bin's end to its beginning."""

BIN_DEVIATION = 0.03
"""Relative standard deviation within a bin of 10 % width: the minimum deviation of a mode."""

SEPARATE = 2.0
"""Ashman's D above which two normals are distinct modes (Ashman et al. 1994, eq. 4)."""

MIN_MODE_RATIO = 1.5
"""Minimum ratio of their means: a narrow mode at the border of two 10 % bins looks like two."""

VERY_STRONG = 10.0
"""How much lower BIC must be for two modes (Kass and Raftery 1995, section 3.2)."""

MIN_OBSERVATIONS = 2.0
MAX_STEPS = 200
TOLERANCE = 1e-7


@dataclass(frozen=True, slots=True)
class Mixture:
    """A mixture of two times, in seconds: the shorter has weight ``p_cache``, the longer the rest.

    With one mode, ``p_cache`` is 1 and the figures of the other mode are 0.
    """

    p_cache: float
    mu_cache: float
    sigma_cache: float
    mu_load: float = 0.0
    sigma_load: float = 0.0

    @property
    def mean(self) -> float:
        return self.p_cache * self.mu_cache + (1.0 - self.p_cache) * self.mu_load

    def share_cache(self, seconds: Floats) -> Floats:
        """Return the probability that each time is in the shorter mode; 1 with only one mode."""
        if self.p_cache >= 1.0:
            return np.ones(len(seconds))
        modes = _Modes.from_mixture(self)
        belongs: Floats = modes.responsibilities(seconds)[0]
        return belongs


def bin_centers(bins: Sequence[int]) -> Floats:
    """Return each bin's representative time in seconds: the geometric middle."""
    return SMALLEST_SECONDS * 10.0 ** ((np.asarray(bins) + 0.5) / BINS_PER_DECADE)


def fit(seconds: Floats, counts: Floats) -> Mixture:
    """Fit one normal or two, whichever BIC prefers; two only if they are distinct.

    ``counts``: how often each of ``seconds`` was seen, (n,); old times may count less than 1.
    """
    present = counts > 0
    seconds, counts = seconds[present], counts[present]
    total = float(counts.sum())
    if not len(seconds):
        return Mixture(1.0, 0.0, 0.0)
    single_mode = _Modes.single(seconds, counts)
    single = Mixture(1.0, float(single_mode.mu[0]), float(single_mode.sigma[0]))
    best = single
    best_bic = _bic(single_mode.log_likelihood(seconds, counts), 2, total) - VERY_STRONG
    for boundary in _cuts(seconds, counts):
        two_modes = _expectation_maximisation(seconds, counts, boundary)
        bic = _bic(two_modes.log_likelihood(seconds, counts), 5, total)
        if bic < best_bic and two_modes.distinct(total):
            best, best_bic = two_modes.mixture(), bic
    return best


def fit_bins(bins: Mapping[int, float]) -> Mixture:
    """`fit` a histogram, given as counts by bin."""
    filled_bins = sorted(bins)
    return fit(
        bin_centers(filled_bins), np.array([bins[bin_] for bin_ in filled_bins], dtype=float)
    )


def _bic(log_likelihood: float, parameters: int, observations: float) -> float:
    return parameters * math.log(max(observations, 1.0)) - 2.0 * log_likelihood


@dataclass(frozen=True, slots=True)
class _Modes:
    """Normals: weights, means and deviations, (modes,) each, means ascending."""

    weight: Floats
    mu: Floats
    sigma: Floats

    @classmethod
    def from_mixture(cls, mixture: Mixture) -> _Modes:
        return cls(
            np.array([mixture.p_cache, 1.0 - mixture.p_cache]),
            np.array([mixture.mu_cache, mixture.mu_load]),
            np.array([mixture.sigma_cache, mixture.sigma_load]),
        )

    @classmethod
    def single(cls, seconds: Floats, counts: Floats) -> _Modes:
        return cls.estimate(seconds, counts[None, :])

    @classmethod
    def estimate(cls, seconds: Floats, counts: Floats) -> _Modes:
        """Estimate the modes from ``counts`` divided among them, (modes, n)."""
        total = np.maximum(counts.sum(axis=1), 1e-12)
        mu = counts @ seconds / total
        spread = np.sqrt((counts * (seconds - mu[:, None]) ** 2).sum(axis=1) / total)
        sigma = np.maximum(spread, BIN_DEVIATION * mu)
        order = np.argsort(mu)
        return cls((total / total.sum())[order], mu[order], sigma[order])

    def log_densities(self, seconds: Floats) -> Floats:
        """Return the weighted log density of each mode at each time, (modes, n)."""
        z = (seconds - self.mu[:, None]) / self.sigma[:, None]
        scale = np.log(self.weight / self.sigma) - 0.5 * math.log(2.0 * math.pi)
        densities: Floats = scale[:, None] - 0.5 * z * z
        return densities

    def responsibilities(self, seconds: Floats) -> Floats:
        logs = self.log_densities(seconds)
        shares = np.exp(logs - logs.max(axis=0))
        probabilities: Floats = shares / shares.sum(axis=0)
        return probabilities

    def log_likelihood(self, seconds: Floats, counts: Floats) -> float:
        logs = self.log_densities(seconds)
        top = logs.max(axis=0)
        return float(counts @ (top + np.log(np.exp(logs - top).sum(axis=0))))

    def distinct(self, total: float) -> bool:
        """Whether both modes have enough observations and are separate."""
        distance = float(self.mu[1] - self.mu[0])
        ashman = math.sqrt(2.0) * distance / math.hypot(*self.sigma)
        separate = ashman > SEPARATE and float(self.mu[1]) >= MIN_MODE_RATIO * float(self.mu[0])
        return separate and float(self.weight.min()) * total >= MIN_OBSERVATIONS

    def mixture(self) -> Mixture:
        return Mixture(
            float(self.weight[0]),
            float(self.mu[0]),
            float(self.sigma[0]),
            float(self.mu[1]),
            float(self.sigma[1]),
        )


def _cuts(seconds: Floats, counts: Floats) -> list[int]:
    """Return where to cut ascending times in two: by the times, and by their logarithms.

    Load times span orders of magnitude: a cut by the times alone may divide the longer mode.
    """
    if len(seconds) < 2:
        return []
    return sorted({_otsu(seconds, counts), _otsu(np.log(seconds), counts)})


def _otsu(values: Floats, counts: Floats) -> int:
    """Return the cut with the largest variance between its two sides; ``values`` are ascending.

    Both sides are summed instead of subtracting one from the total: rounding would otherwise erase
    a last count that is small compared with the others.
    """
    left_count, right_count = np.cumsum(counts)[:-1], np.cumsum(counts[::-1])[-2::-1]
    sums = counts * values
    left_sum, right_sum = np.cumsum(sums)[:-1], np.cumsum(sums[::-1])[-2::-1]
    return (
        int(
            np.argmax(
                left_count * right_count * (left_sum / left_count - right_sum / right_count) ** 2
            )
        )
        + 1
    )


def _expectation_maximisation(seconds: Floats, counts: Floats, boundary: int) -> _Modes:
    shares = np.zeros((2, len(seconds)))
    shares[0, :boundary] = shares[1, boundary:] = 1.0
    modes = _Modes.estimate(seconds, shares * counts)
    previous = -math.inf
    for _ in range(MAX_STEPS):
        likelihood = modes.log_likelihood(seconds, counts)
        if likelihood - previous <= TOLERANCE * abs(likelihood):
            break
        previous = likelihood
        modes = _Modes.estimate(seconds, modes.responsibilities(seconds) * counts)
    return modes
