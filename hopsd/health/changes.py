"""Find when a node became slower or faster: change points in the course of its measurements."""

from __future__ import annotations

import numpy as np

from hopsd.health.robust import Floats, Ints, group

MIN_DEVIATIONS = 4.0
"""A change must be clearer than this many standard errors."""

MIN_CHANGE = 0.01
"""Smaller changes (logarithms) are ignored, and stay part of the mean."""


def change_points(
    residuals: Floats, variances: Floats, runs: Ints, run_variance: Floats
) -> list[int]:
    """Return where epochs after the first begin: indices into ``residuals`` (n,), in time order.

    ``runs`` (n,) is the run of each residual; those of a run share a deviation, whose variance is
    ``run_variance`` (n,). By binary segmentation: the clearest change splits the course, then each
    part is split in turn.
    """
    begins: list[int] = []
    waiting = [(0, len(residuals))]
    while waiting:
        start, end = waiting.pop()
        part = slice(start, end)
        split = _clearest(residuals[part], variances[part], runs[part], run_variance[part])
        if split is not None:
            begins.append(start + split)
            waiting += [(start, start + split), (start + split, end)]
    return sorted(begins)


def _clearest(residuals: Floats, variances: Floats, runs: Ints, run_variance: Floats) -> int | None:
    if len(residuals) < 2:
        return None
    numbers = group(runs)
    weights = 1.0 / (variances + run_variance)
    left_mean, left_error, common = _prefix(residuals, variances, weights, numbers, run_variance)
    right, right_error, _ = _prefix(
        residuals[::-1], variances[::-1], weights[::-1], numbers[::-1], run_variance[::-1]
    )
    change = right[::-1][1:] - left_mean[:-1]
    # The shared deviation of a run on both sides of a split is no change.
    total = np.cumsum(weights)[:-1]
    shared_variance = 2.0 * common[:-1] / (total * (weights.sum() - total))
    error = left_error[:-1] + right_error[::-1][1:] - shared_variance
    deviations = np.abs(change) / np.sqrt(np.maximum(error, 1e-12))
    run_deviations, size = _within_runs(residuals, variances, numbers)
    deviations = np.where(np.abs(change) < MIN_CHANGE, 0.0, deviations)
    run_deviations = np.where(np.abs(size) < MIN_CHANGE, 0.0, run_deviations)
    deviations = np.maximum(deviations, run_deviations)
    best = int(np.argmax(deviations))
    return best + 1 if deviations[best] > MIN_DEVIATIONS else None


def _within_runs(residuals: Floats, variances: Floats, runs: Ints) -> tuple[Floats, Floats]:
    """How clearly, in standard errors, and by how much runs change at each split (n - 1,).

    Only runs on both sides of the split count, each compared with itself.
    """
    weights = 1.0 / variances
    run_weight = np.bincount(runs, weights)[runs]
    run_mean = (np.bincount(runs, weights * residuals) / np.bincount(runs, weights))[runs]
    order = np.argsort(runs, kind="stable")
    running_sum = np.empty_like(weights)
    running_sum[order] = np.cumsum(weights[order])
    starts = np.cumsum(np.bincount(runs, weights)) - np.bincount(runs, weights)
    upto = running_sum - starts[runs]
    before = upto - weights
    gain = (upto * (run_weight - upto) - before * (run_weight - before)) / run_weight
    precision = np.maximum(np.cumsum(gain)[:-1], 1e-9)
    total = np.cumsum(weights * (run_mean - residuals))[:-1]
    clear = precision > 1e-6 * weights.max()
    deviations = np.where(clear, np.abs(total) / np.sqrt(precision), 0.0)
    return deviations, np.where(clear, total / precision, 0.0)


def _prefix(
    residuals: Floats, variances: Floats, weights: Floats, runs: Ints, run_variance: Floats
) -> tuple[Floats, Floats, Floats]:
    """Return the mean of the first 1, 2, ... residuals, its variance, and their covariance with the
    others, times both weights; all (n,).
    """
    total = np.cumsum(weights)
    mean = np.cumsum(weights * residuals) / total
    order = np.argsort(runs, kind="stable")
    running_sum = np.cumsum(weights[order])
    starts = np.flatnonzero(np.diff(runs[order], prepend=-1))
    lengths = np.diff(np.append(starts, len(runs)))
    base = np.repeat(running_sum[starts] - weights[order][starts], lengths)
    preceding_sums = np.empty_like(weights)
    preceding_sums[order] = running_sum - weights[order] - base
    squares = np.cumsum(run_variance * (2.0 * preceding_sums * weights + weights**2))
    run_weight = np.bincount(runs, weights)[runs]
    noise = np.cumsum(weights**2 * variances)
    common = np.cumsum(run_variance * weights * run_weight) - squares
    return mean, (noise + squares) / total**2, common
