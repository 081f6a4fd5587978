"""Stores a series of times in bounded memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import log10, sqrt
from operator import mul

BINS_PER_DECADE = 24
MIN_TIME = 1e-6


class Series:
    """Count, mean and deviation of times."""

    __slots__ = ("count", "squares", "sum")

    def __init__(self) -> None:
        self.count = 0
        self.sum = 0.0
        self.squares = 0.0

    def add(self, seconds: float) -> int | None:
        """Add a time; return its bin if there are bins."""
        self.count += 1
        self.sum += seconds
        self.squares += seconds * seconds
        return None

    def extend(self, seconds: Sequence[float]) -> list[int] | None:
        """Add several times; return their bins if there are bins."""
        self.count += len(seconds)
        self.sum = sum(seconds, self.sum)
        self.squares = sum(map(mul, seconds, seconds), self.squares)
        return None

    @property
    def mean(self) -> float:
        return self.sum / self.count if self.count else 0.0

    @property
    def deviation(self) -> float:
        """Standard deviation; 0 for fewer than two values."""
        if self.count < 2:
            return 0.0
        return sqrt(max(0.0, self.squares / self.count - self.mean**2))

    def as_json(self) -> dict[str, object]:
        return {"count": self.count, "mean": self.mean, "deviation": self.deviation}


class Histogram(Series):
    """A series with bins 10 % wide, which take more time than all other sums.

    Bin ``i`` begins at ``MIN_TIME * 10 ** (i / BINS_PER_DECADE)`` seconds; shorter times go into
    bin 0. Times from 100 microseconds to 1,000 seconds take 168 bins, so a histogram stays small.
    """

    __slots__ = ("bins",)

    def __init__(self) -> None:
        super().__init__()
        self.bins: dict[int, int] = {}

    def add(self, seconds: float) -> int:
        return self.extend([seconds])[0]

    def extend(self, seconds: Sequence[float]) -> list[int]:
        super().extend(seconds)
        bins = [int(BINS_PER_DECADE * log10(s / MIN_TIME)) if s > MIN_TIME else 0 for s in seconds]
        for bin_, count in Counter(bins).items():
            self.bins[bin_] = self.bins.get(bin_, 0) + count
        return bins

    def quantile(self, share: float) -> float:
        """The time below which ``share`` of the values lie, to the middle of its bin."""
        remaining = share * self.count
        for bin_ in sorted(self.bins):
            remaining -= self.bins[bin_]
            if remaining <= 0:
                return float(MIN_TIME * 10 ** ((bin_ + 0.5) / BINS_PER_DECADE))
        return 0.0

    def as_json(self) -> dict[str, object]:
        bins = {str(bin_): count for bin_, count in sorted(self.bins.items())}
        return {**super().as_json(), "bins": bins}
