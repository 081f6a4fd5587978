"""Statistics over seeds, formatted for result pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from statistics import fmean, stdev

from scipy.special import stdtrit  # scipy.stats takes seconds to import

MIN_FIGURE = 0.01
"""Lower bound on figures before a ratio is taken: a latency ratio may be 0."""


def mean_and_spread(values: Sequence[float], form: str) -> str:
    """Mean and, for several values, standard deviation in the format ``form``; only the mean gets
    a sign.
    """
    spread = f" ± {stdev(values):{form.lstrip('+')}}" if len(values) > 1 else ""
    return f"{fmean(values):{form}}{spread}"


@dataclass(frozen=True, slots=True)
class Interval:
    """A geometric mean of ratios and its 95 % interval."""

    mean: float
    low: float
    high: float

    @property
    def differs(self) -> bool:
        return not self.low <= 1.0 <= self.high

    def __str__(self) -> str:
        ends = (f"{self.low:.2f}", f"{self.high:.2f}")
        return "-".join(ends if self.high < 10.0 else map(short, (self.low, self.high)))


def interval(values: Sequence[float], reference: Sequence[float]) -> Interval:
    """Interval of two or more ratios, ``values`` over ``reference``, by Student's t of logs."""
    logs = [
        log(max(a, MIN_FIGURE) / max(b, MIN_FIGURE)) for a, b in zip(values, reference, strict=True)
    ]
    mean = fmean(logs)
    half = float(stdtrit(len(logs) - 1, 0.975)) * stdev(logs) / sqrt(len(logs))
    return Interval(exp(mean), exp(mean - half), exp(mean + half))


def short(value: float) -> str:
    """Format ``value`` with two or three digits."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
