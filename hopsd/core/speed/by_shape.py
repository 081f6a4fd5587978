"""Throughput by GPU and server count: Gaussian process regression around equations 1 to 5.

The logarithm of an iteration's time is the equations' prediction, with three corrections that are
the same for all shapes of a workload on a type (to the whole time, the link's and the network's),
plus a smooth deviation that similar shapes share. Both are inferred from measured shapes (Rasmussen
and Williams, Gaussian Processes for Machine Learning, section 2.7, with Gauss-Newton steps).
A measurement that agrees with the equations corrects nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import exp, log

import numpy as np

from hopsd.core.speed.layers import Measured
from hopsd.core.speed.throughput import BasicTimes, IterationModel, PeerWait, iteration_seconds
from hopsd.model.arrays import Floats
from hopsd.model.job import Shape

DEVIATION, OCTAVES = 0.10, 1.0
"""Standard deviation of the smooth part, and its length scale in doublings of a count."""

SCATTER = 0.08
"""Standard deviation of the deviation that a shape shares with no other."""

CORRELATED = 0.5
"""Correlation of the link's and the network's corrections: both depend on the parameters."""

HALF_WIDTH_80 = 1.2816
"""Half the width of a normal's 80 % interval, in standard deviations."""

OLDER = 0.3
"""Additional standard deviation of measurements of an older version of the program."""

SURPRISE = 3.0
"""Cap on a logarithmic residual: a report more than 20 times off has no more influence."""

MAX_SHAPES = 48
"""The most shapes that corrections are fitted to: those with the most records."""

Corrections = tuple[float, float, float]
"""Log corrections to the whole iteration, to communication in a server and to it over several."""

ALONE: Shape = (1, 1)
"""A single GPU, which has no peers to wait for."""

NONE: Corrections = (0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Belief:
    """The prior for a type, before any shape was measured.

    ``whole``, ``link`` and ``net``: standard deviations of the corrections.
    """

    times: BasicTimes
    whole: float
    link: float
    net: float

    @property
    def covariance(self) -> Floats:
        """The prior covariance of the corrections, (3, 3)."""
        shared = CORRELATED * self.link * self.net
        return np.array(
            [[self.whole**2, 0.0, 0.0], [0.0, self.link**2, shared], [0.0, shared, self.net**2]]
        )


@dataclass(frozen=True, slots=True)
class _Fitted:
    """The posterior. ``at``: the corrections; ``pull`` (n,): weights of the shapes' deviations.

    For the uncertainty: ``slopes`` (n, 3), the ``inverse`` (n, n) of the deviations' covariance,
    and ``left`` (3, 3), the posterior covariance of the corrections.
    """

    at: Corrections
    shapes: tuple[Shape, ...]
    pull: tuple[float, ...]
    slopes: Floats
    inverse: Floats
    left: Floats


Speeds = tuple[tuple[Shape, float], ...]
"""Shapes with samples per second per GPU."""


def speeds_of(measured: Mapping[Shape, Measured]) -> Speeds:
    """The shapes with most records. Rounded, so that decay of all weights alike changes nothing."""
    most = sorted(measured, key=lambda s: (-measured[s].records, s))[:MAX_SHAPES]
    return tuple((shape, float(f"{measured[shape].per_gpu:.12g}")) for shape in sorted(most))


@lru_cache(maxsize=4096)
def regression(
    belief: Belief, model: IterationModel, measured: Speeds, older: Speeds = ()
) -> Regression:
    """A cached :class:`Regression`: from tick to tick most workloads have no new measurements."""
    return Regression(belief, model, measured, older)


class Regression:
    """Samples per second per GPU of all shapes of one workload on one type."""

    def __init__(
        self, belief: Belief, model: IterationModel, measured: Speeds, older: Speeds = ()
    ) -> None:
        """``older``: speeds of an older version of the program, which weigh less."""
        self._belief, self._model = belief, model
        self._scaled = belief.times
        own = dict(measured)
        speeds = {**dict(older), **own}
        noise = [SCATTER**2 + (0.0 if shape in own else OLDER**2) for shape in speeds]
        self._fit = self._fitted(speeds, np.array(noise))
        self._scaled = _scaled(belief.times, self._fit.at)
        self._known: dict[Shape, float] = {}

    def base(self, gpus: int, nodes: int) -> float:
        """The equations' prediction, without measurements."""
        return exp(-self._log_seconds(NONE, self._belief.times, (gpus, nodes)))

    def per_gpu(self, gpus: int, nodes: int) -> float:
        """The median of the estimate."""
        shape = gpus, nodes
        if shape not in self._known:
            fit = self._fit
            expected = self._log_seconds(fit.at, self._scaled, shape)
            for known, pull in zip(fit.shapes, fit.pull, strict=True):
                expected += pull * _alike(known, shape)
            self._known[shape] = exp(-expected)
        return self._known[shape]

    def deviation(self, gpus: int, nodes: int) -> float:
        """Standard deviation of the logarithm of :meth:`per_gpu`."""
        fit, shape = self._fit, (gpus, nodes)
        near = np.array([_alike(known, shape) for known in fit.shapes])
        slope = self._slope(fit.at, shape) - near @ fit.inverse @ fit.slopes
        variance = DEVIATION**2 + SCATTER**2 - near @ fit.inverse @ near
        return float(np.sqrt(max(0.0, variance) + slope @ fit.left @ slope))

    def _log_seconds(self, at: Corrections, scaled: BasicTimes, shape: Shape) -> float:
        """Log seconds per sample and GPU. ``scaled``: the basic times with ``at`` applied."""
        if shape == ALONE:
            scaled = replace(scaled, t_w=PeerWait())
        return at[0] + log(iteration_seconds(scaled, *shape, self._model) / scaled.batch_size)

    def _slope(self, at: Corrections, shape: Shape) -> Floats:
        """The gradient of the log seconds with respect to the corrections, (3,)."""
        step = 1e-3
        own = 1 if shape[1] == 1 else 2
        moved = [at[0], at[1], at[2]]
        moved[own] += step
        there = (moved[0], moved[1], moved[2])
        times = self._belief.times
        rise = self._log_seconds(there, _scaled(times, there), shape)
        rise -= self._log_seconds(at, _scaled(times, at), shape)
        slope = np.zeros(3)
        slope[0], slope[own] = 1.0, rise / step
        return slope

    def _fitted(self, per_gpu: Mapping[Shape, float], noise: Floats) -> _Fitted:
        shapes = tuple(per_gpu)
        before = self._belief.covariance
        if not shapes:
            none = np.zeros((0, 0))
            return _Fitted(NONE, (), (), np.zeros((0, 3)), none, before)
        observed = np.array([self._surprise(shape, rate) for shape, rate in per_gpu.items()])
        covariance = np.array([[_alike(one, other) for other in shapes] for one in shapes])
        inverse = np.asarray(np.linalg.inv(covariance + np.diag(noise)), dtype=np.float64)
        prior = np.linalg.inv(before)

        def missed(at: Floats) -> Floats:
            now = (float(at[0]), float(at[1]), float(at[2]))
            scaled = _scaled(self._belief.times, now)
            predicted = [self._log_seconds(now, scaled, shape) for shape in shapes]
            residual: Floats = observed - predicted
            return residual

        def slopes_at(at: Floats) -> Floats:
            now = (float(at[0]), float(at[1]), float(at[2]))
            return np.array([self._slope(now, shape) for shape in shapes])

        at, rest = np.zeros(3), missed(np.zeros(3))
        cost = rest @ inverse @ rest
        for _ in range(20):
            slopes = slopes_at(at)
            weighted = slopes.T @ inverse
            step = np.linalg.solve(weighted @ slopes + prior, weighted @ rest - prior @ at)
            share, better = 1.0, False
            while share > 0.02 and not better:
                there = at + share * step
                left = missed(there)
                new = left @ inverse @ left + there @ prior @ there
                better = new < cost
                share /= 2.0
            if not better:
                break
            gained, at, rest, cost = cost - new, there, left, new
            if gained < 1e-6:
                break
        slopes = slopes_at(at)
        left_over = np.asarray(np.linalg.inv(slopes.T @ inverse @ slopes + prior), dtype=np.float64)
        found = (float(at[0]), float(at[1]), float(at[2]))
        pull = tuple((inverse @ rest).tolist())
        return _Fitted(found, shapes, pull, slopes, inverse, left_over)

    def _surprise(self, shape: Shape, per_gpu: float) -> float:
        """The measured log seconds per sample, capped at :data:`SURPRISE` from the prediction."""
        expected = self._log_seconds(NONE, self._belief.times, shape)
        return min(max(-log(per_gpu), expected - SURPRISE), expected + SURPRISE)


def _scaled(times: BasicTimes, at: Corrections) -> BasicTimes:
    if not at[1] and not at[2]:
        return times
    return replace(times, b_link=times.b_link * exp(-at[1]), b_net=times.b_net * exp(-at[2]))


def _alike(one: Shape, other: Shape) -> float:
    """Covariance of the smooth deviations; none between one server and several."""
    if (one[1] == 1) != (other[1] == 1):
        return 0.0
    gpus, nodes = log(one[0] / other[0]), log(one[1] / other[1])
    far = (gpus * gpus + nodes * nodes) / (OCTAVES * log(2.0)) ** 2
    return DEVIATION**2 * exp(-0.5 * far)
