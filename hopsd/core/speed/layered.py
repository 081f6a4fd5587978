"""The estimate for a shape: measured, or corrected theory.

Between two counts measured in a server, the ratio of measured speed to theory is interpolated, so
that a measurement that agrees with theory changes no other estimate.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import exp

from hopsd.core.speed.by_shape import HALF_WIDTH_80, Regression
from hopsd.core.speed.layers import MeasuredSpeed
from hopsd.core.speed.speed_answer import ASSUMED, record_count
from hopsd.core.speed.throughput import interpolate
from hopsd.model.bounds import ValueRange
from hopsd.model.job import ByShape, Shape

SAME_SCALE = 0.005
"""The source omits smaller corrections."""

REPEATABILITY = 0.02
"""The minimum relative standard deviation of a speed between runs."""


class LayeredSpeeds:
    """Implements :class:`hopsd.model.job.ByShape` for one workload on one type.

    ``source_alone`` and ``source``: the sources without measurements, for one GPU and several.
    """

    def __init__(
        self,
        theory: Regression,
        speeds: Mapping[Shape, MeasuredSpeed],
        source_alone: str,
        source: str,
    ) -> None:
        self._theory, self._speeds = theory, speeds
        self._source_alone, self._source = source_alone, source
        self._one_server = {
            gpus: m.per_gpu / theory.per_gpu(gpus, 1)
            for (gpus, nodes), m in speeds.items()
            if nodes == 1
        }
        self._cache: dict[Shape, float] = {}
        self._interval_factors: dict[Shape, float] = {}

    def per_gpu(self, gpus: int, nodes: int) -> float:
        """Return the estimate."""
        shape = gpus, nodes
        if shape not in self._cache:
            self._cache[shape] = self._per_gpu(gpus, nodes)
        return self._cache[shape]

    def interval(self, gpus: int, nodes: int) -> tuple[float, float]:
        """Return the 80 % interval of the estimate."""
        if (gpus, nodes) not in self._interval_factors:
            speed = self._speeds.get((gpus, nodes))
            if speed is not None:
                deviation = max(REPEATABILITY, speed.deviation)
            else:
                deviation = self._theory.deviation(gpus, nodes)
            self._interval_factors[gpus, nodes] = exp(HALF_WIDTH_80 * deviation)
        factor = self._interval_factors[gpus, nodes]
        per_gpu = self.per_gpu(gpus, nodes)
        return per_gpu / factor, per_gpu * factor

    def source(self, gpus: int, nodes: int) -> str:
        """Say where the estimate comes from."""
        speed = self._speeds.get((gpus, nodes))
        if speed is not None:
            return f"type, {record_count(speed.records)}"
        if nodes == 1 and self._neighbours(gpus):
            records = sum(self._speeds[n, 1].records for n in self._neighbours(gpus))
            return f"type, {record_count(records)} of neighbours"
        source = self._source_alone if gpus == 1 else self._source
        if source == ASSUMED:
            comparable = [m for (_, n), m in self._speeds.items() if (n == 1) == (nodes == 1)]
            return (
                f"{record_count(sum(m.records for m in comparable))} of other shapes"
                if comparable
                else source
            )
        scale = self.per_gpu(gpus, nodes) / self._theory.base(gpus, nodes)
        return source if abs(scale - 1.0) < SAME_SCALE else f"{source}, scaled by {scale:.2f}"

    def _per_gpu(self, gpus: int, nodes: int) -> float:
        speed = self._speeds.get((gpus, nodes))
        if speed is not None:
            return speed.per_gpu
        theory = self._theory.per_gpu(gpus, nodes)
        if nodes == 1 and self._neighbours(gpus):
            return interpolate(self._one_server, gpus) * theory
        return theory

    def _neighbours(self, gpus: int) -> tuple[int, ...]:
        """Return the nearest measured counts on one server, if there are any on both sides."""
        smaller = [n for n in self._one_server if n < gpus]
        larger = [n for n in self._one_server if n > gpus]
        return (max(smaller), min(larger)) if smaller and larger else ()


class ClampedSpeeds:
    """``speeds`` times ``scale``, within ``one_server`` on one server and ``spread`` over several.

    Implements :class:`hopsd.model.job.ByShape`.
    """

    def __init__(
        self, speeds: ByShape, scale: float, one_server: ValueRange, spread: ValueRange
    ) -> None:
        self._speeds, self._scale = speeds, scale
        self._one_server, self._spread = one_server, spread

    def per_gpu(self, gpus: int, nodes: int) -> float:
        """Return the estimate."""
        return self.clamp(self._scale * self._speeds.per_gpu(gpus, nodes), nodes)

    def interval(self, gpus: int, nodes: int) -> tuple[float, float]:
        """Return the 80 % interval of the estimate."""
        low, high = self._speeds.interval(gpus, nodes)
        return self.clamp(self._scale * low, nodes), self.clamp(self._scale * high, nodes)

    def source(self, gpus: int, nodes: int) -> str:
        """Say where the estimate comes from."""
        source = self._speeds.source(gpus, nodes)
        is_unchanged = self.per_gpu(gpus, nodes) == self._speeds.per_gpu(gpus, nodes)
        return source if is_unchanged else f"{source}, limited to plausible values"

    def clamp(self, rate: float, nodes: int) -> float:
        """Clamp ``rate`` to the bounds."""
        bound = self._one_server if nodes == 1 else self._spread
        return min(max(rate, bound.minimum), bound.maximum)
