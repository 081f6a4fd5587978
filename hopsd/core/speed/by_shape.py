"""Throughput by GPU and server count: Gaussian process regression around equations 1 to 5.

The logarithm of an iteration's time is the equations' prediction with three corrections (to the
whole time, the link's and the network's), which all shapes of a workload on a type have in common,
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

from hopsd.core.speed.layers import MeasuredSpeed
from hopsd.core.speed.throughput import BasicTimes, IterationModel, PeerWait, iteration_seconds
from hopsd.model.arrays import Floats
from hopsd.model.job import Shape

DEVIATION, OCTAVES = 0.10, 1.0
"""Standard deviation of the smooth part, and its length scale in doublings of a count."""

SCATTER = 0.08
"""Standard deviation of the deviation that a shape shares with no other."""

CORRELATION = 0.5
"""Correlation of the link's and the network's corrections: both depend on the parameters."""

HALF_WIDTH_80 = 1.2816
"""Half the width of a normal's 80 % interval, in standard deviations."""

OLDER = 0.3
"""Additional standard deviation of measurements of an older version of the program."""

SURPRISE = 3.0
"""Cap on a logarithmic residual: a report that is more than 20 times off gains no influence."""

MAX_SHAPES = 48
"""Maximum number of shapes that corrections are fitted to: those with the most records."""

Corrections = tuple[float, float, float]
"""Log corrections to the whole iteration, and to communication in a server and over several."""

ALONE: Shape = (1, 1)
"""A single GPU, which has no peers to wait for."""

NONE: Corrections = (0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Belief:
    """The prior for a type, before any shape was measured.

    ``iteration``, ``link`` and ``net``: standard deviations of the three corrections.
    """

    times: BasicTimes
    iteration: float
    link: float
    net: float

    @property
    def covariance(self) -> Floats:
        """The prior covariance of the corrections, (3, 3)."""
        shared_variance = CORRELATION * self.link * self.net
        return np.array(
            [
                [self.iteration**2, 0.0, 0.0],
                [0.0, self.link**2, shared_variance],
                [0.0, shared_variance, self.net**2],
            ]
        )


@dataclass(frozen=True, slots=True)
class _Posterior:
    """The posterior: ``corrections``, and ``weights`` (n,) of the shapes' deviations.

    For the uncertainty: ``slopes`` (n, 3), the ``inverse`` (n, n) of the deviations' covariance,
    and ``covariance`` (3, 3) of the corrections.
    """

    corrections: Corrections
    shapes: tuple[Shape, ...]
    weights: tuple[float, ...]
    slopes: Floats
    inverse: Floats
    covariance: Floats


Speeds = tuple[tuple[Shape, float], ...]
"""Shapes with samples per second per GPU."""


def speeds_of(speeds: Mapping[Shape, MeasuredSpeed]) -> Speeds:
    """Return the shapes with the most records. Rounding absorbs the common decay of all weights."""
    top_shapes = sorted(speeds, key=lambda s: (-speeds[s].records, s))[:MAX_SHAPES]
    return tuple((shape, float(f"{speeds[shape].per_gpu:.12g}")) for shape in sorted(top_shapes))


@lru_cache(maxsize=4096)
def regression(
    belief: Belief, model: IterationModel, current_speeds: Speeds, older: Speeds = ()
) -> Regression:
    """Cache :class:`Regression`, since most workloads have no new measurements in a tick."""
    return Regression(belief, model, current_speeds, older)


class Regression:
    """Samples per second per GPU of all shapes of one workload on one type."""

    def __init__(
        self, belief: Belief, model: IterationModel, current_speeds: Speeds, older: Speeds = ()
    ) -> None:
        """``older``: speeds of an older version of the program, which weigh less."""
        self._belief, self._model = belief, model
        self._current_times = belief.times
        newest = dict(current_speeds)
        speeds = {**dict(older), **newest}
        noise = [SCATTER**2 + (0.0 if shape in newest else OLDER**2) for shape in speeds]
        self._fit = self._fit_posterior(speeds, np.array(noise))
        self._current_times = _corrected_times(belief.times, self._fit.corrections)
        self._cache: dict[Shape, float] = {}

    def base(self, gpus: int, nodes: int) -> float:
        """Return the equations' prediction, without measurements."""
        return exp(-self._log_seconds(NONE, self._belief.times, (gpus, nodes)))

    def per_gpu(self, gpus: int, nodes: int) -> float:
        """Return the median of the estimate."""
        shape = gpus, nodes
        if shape not in self._cache:
            fit = self._fit
            log_seconds = self._log_seconds(fit.corrections, self._current_times, shape)
            for fitted_shape, pull in zip(fit.shapes, fit.weights, strict=True):
                log_seconds += pull * _similarity(fitted_shape, shape)
            self._cache[shape] = exp(-log_seconds)
        return self._cache[shape]

    def deviation(self, gpus: int, nodes: int) -> float:
        """Return the standard deviation of the logarithm of :meth:`per_gpu`."""
        fit, shape = self._fit, (gpus, nodes)
        similarities = np.array([_similarity(fitted_shape, shape) for fitted_shape in fit.shapes])
        slope = self._slope(fit.corrections, shape) - similarities @ fit.inverse @ fit.slopes
        variance = DEVIATION**2 + SCATTER**2 - similarities @ fit.inverse @ similarities
        return float(np.sqrt(max(0.0, variance) + slope @ fit.covariance @ slope))

    def _log_seconds(self, corrections: Corrections, times: BasicTimes, shape: Shape) -> float:
        """Return log seconds per sample and GPU; ``times`` have ``corrections`` applied."""
        if shape == ALONE:
            times = replace(times, t_w=PeerWait())
        return corrections[0] + log(
            iteration_seconds(times, *shape, self._model) / times.batch_size
        )

    def _slope(self, corrections: Corrections, shape: Shape) -> Floats:
        """Return the gradient of the log seconds with respect to the corrections, (3,)."""
        step = 1e-3
        index = 1 if shape[1] == 1 else 2
        values = [corrections[0], corrections[1], corrections[2]]
        values[index] += step
        neighbour = (values[0], values[1], values[2])
        times = self._belief.times
        rise = self._log_seconds(neighbour, _corrected_times(times, neighbour), shape)
        rise -= self._log_seconds(corrections, _corrected_times(times, corrections), shape)
        slope = np.zeros(3)
        slope[0], slope[index] = 1.0, rise / step
        return slope

    def _fit_posterior(self, per_gpu: Mapping[Shape, float], noise: Floats) -> _Posterior:
        shapes = tuple(per_gpu)
        prior_covariance = self._belief.covariance
        if not shapes:
            empty = np.zeros((0, 0))
            return _Posterior(NONE, (), (), np.zeros((0, 3)), empty, prior_covariance)
        observations = np.array([self._surprise(shape, rate) for shape, rate in per_gpu.items()])
        covariance = np.array(
            [[_similarity(first, second) for second in shapes] for first in shapes]
        )
        inverse = np.asarray(np.linalg.inv(covariance + np.diag(noise)), dtype=np.float64)
        prior = np.linalg.inv(prior_covariance)

        def residuals(values: Floats) -> Floats:
            corrections = (float(values[0]), float(values[1]), float(values[2]))
            times = _corrected_times(self._belief.times, corrections)
            predictions = [self._log_seconds(corrections, times, shape) for shape in shapes]
            residual: Floats = observations - predictions
            return residual

        def slopes_at(values: Floats) -> Floats:
            corrections = (float(values[0]), float(values[1]), float(values[2]))
            return np.array([self._slope(corrections, shape) for shape in shapes])

        values, residual = np.zeros(3), residuals(np.zeros(3))
        cost = residual @ inverse @ residual
        for _ in range(20):
            slopes = slopes_at(values)
            weighted_slopes = slopes.T @ inverse
            step = np.linalg.solve(
                weighted_slopes @ slopes + prior, weighted_slopes @ residual - prior @ values
            )
            share, better = 1.0, False
            while share > 0.02 and not better:
                candidate = values + share * step
                candidate_residual = residuals(candidate)
                new = (
                    candidate_residual @ inverse @ candidate_residual
                    + candidate @ prior @ candidate
                )
                better = new < cost
                share /= 2.0
            if not better:
                break
            gain, values, residual, cost = cost - new, candidate, candidate_residual, new
            if gain < 1e-6:
                break
        slopes = slopes_at(values)
        posterior = np.asarray(np.linalg.inv(slopes.T @ inverse @ slopes + prior), dtype=np.float64)
        corrections = (float(values[0]), float(values[1]), float(values[2]))
        pull = tuple((inverse @ residual).tolist())
        return _Posterior(corrections, shapes, pull, slopes, inverse, posterior)

    def _surprise(self, shape: Shape, per_gpu: float) -> float:
        """Return the measured log seconds per sample, at most SURPRISE from the prediction."""
        prediction = self._log_seconds(NONE, self._belief.times, shape)
        return min(max(-log(per_gpu), prediction - SURPRISE), prediction + SURPRISE)


def _corrected_times(times: BasicTimes, corrections: Corrections) -> BasicTimes:
    if not corrections[1] and not corrections[2]:
        return times
    return replace(
        times, b_link=times.b_link * exp(-corrections[1]), b_net=times.b_net * exp(-corrections[2])
    )


def _similarity(first: Shape, second: Shape) -> float:
    """Return the covariance of the smooth deviations; 0 between one server and several."""
    if (first[1] == 1) != (second[1] == 1):
        return 0.0
    gpus, nodes = log(first[0] / second[0]), log(first[1] / second[1])
    distance = (gpus * gpus + nodes * nodes) / (OCTAVES * log(2.0)) ** 2
    return DEVIATION**2 * exp(-0.5 * distance)
