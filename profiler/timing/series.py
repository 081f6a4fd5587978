"""Stores a series of times in bounded memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import log10, sqrt

BINS_PER_DECADE = 24
MIN_TIME = 1e-6


class Series:
    """Count, sum and a histogram with bins 10 % wide, to which hopsd fits two normals.

    Bin ``i`` begins at ``MIN_TIME * 10 ** (i / BINS_PER_DECADE)`` seconds; shorter times go into
    bin 0. Times from 100 microseconds to 1,000 seconds take 168 bins, so a series stays small.
    """

    __slots__ = ("bins", "count", "squares", "sum")

    def __init__(self) -> None:
        self.count = 0
        self.sum = 0.0
        self.squares = 0.0
        self.bins: dict[int, int] = {}

    def add(self, seconds: float) -> int:
        """Add a time; return its bin."""
        self.count += 1
        self.sum += seconds
        self.squares += seconds * seconds
        bin_ = int(BINS_PER_DECADE * log10(seconds / MIN_TIME)) if seconds > MIN_TIME else 0
        self.bins[bin_] = self.bins.get(bin_, 0) + 1
        return bin_

    def extend(self, seconds: Sequence[float]) -> list[int]:
        """Add several times; return their bins."""
        self.count += len(seconds)
        self.sum = sum(seconds, self.sum)
        self.squares = sum([s * s for s in seconds], self.squares)
        bins = [int(BINS_PER_DECADE * log10(s / MIN_TIME)) if s > MIN_TIME else 0 for s in seconds]
        for bin_, count in Counter(bins).items():
            self.bins[bin_] = self.bins.get(bin_, 0) + count
        return bins

    @property
    def mean(self) -> float:
        return self.sum / self.count if self.count else 0.0

    @property
    def deviation(self) -> float:
        """Standard deviation; 0 for fewer than two values."""
        if self.count < 2:
            return 0.0
        return sqrt(max(0.0, self.squares / self.count - self.mean**2))

    def quantile(self, share: float) -> float:
        """The time below which ``share`` of the values lie, to the middle of its bin."""
        remaining = share * self.count
        for bin_ in sorted(self.bins):
            remaining -= self.bins[bin_]
            if remaining <= 0:
                return float(MIN_TIME * 10 ** ((bin_ + 0.5) / BINS_PER_DECADE))
        return 0.0

    def as_json(self) -> dict[str, object]:
        return {
            "count": self.count,
            "mean": self.mean,
            "deviation": self.deviation,
            "bins": {str(bin_): count for bin_, count in sorted(self.bins.items())},
        }
