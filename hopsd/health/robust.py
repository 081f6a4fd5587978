"""Statistics by groups, without loops, that a few outliers cannot move."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, polygamma

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

CLIP, FIRM_CLIP = 2.5, 1.0
"""Standard deviations at which values are clipped; FIRM_CLIP is for data with many outliers."""

MAX_STEPS, PRECISION = 60, 1e-12
"""The most steps of Newton's method, which mostly takes 3 to 7, and its relative precision."""

_CLIPPED_MEAN = {CLIP: 0.9625, FIRM_CLIP: 0.5160}
"""Mean of min(z², clip²) for a standard normal z."""


def group(*keys: NDArray[np.generic]) -> Ints:
    """Number the elements from 0 (n,), equally where all ``keys`` (n,) are equal."""
    if not len(keys[0]):
        return np.zeros(0, np.int64)
    order = np.lexsort(keys)
    new = np.zeros(len(order), np.int64)
    for key in keys:
        new[1:] |= key[order][1:] != key[order][:-1]
    numbers = np.empty_like(new)
    numbers[order] = np.cumsum(new)
    return numbers


def distinct_counts(values: NDArray[np.generic], groups: Ints, count: int) -> Ints:
    """Count the different ``values`` (n,) that each of ``groups`` (n,) has (count,)."""
    pair = group(groups, values)
    pair_groups = np.zeros(int(pair.max(initial=-1)) + 1, np.int64)
    pair_groups[pair] = groups
    return np.bincount(pair_groups, minlength=count)


def group_medians(values: Floats, groups: Ints, count: int) -> Floats:
    """The median of each group (count,); NaN for an empty group."""
    low = group_quantiles(values, groups, count, 0.5)
    return (low - group_quantiles(-values, groups, count, 0.5)) / 2.0


def group_quantiles(values: Floats, groups: Ints, count: int, share: float) -> Floats:
    """The ``share`` quantile of each group (count,), rounded down to a value; NaN if empty."""
    order = np.lexsort((values, groups))
    size = np.bincount(groups, minlength=count)
    start = np.cumsum(size) - size
    full = size > 0
    quantiles = np.full(count, np.nan)
    place = start[full] + (share * (size[full] - 1)).astype(np.int64)
    quantiles[full] = values[order][place]
    return quantiles


def group_means(values: Floats, weights: Floats, groups: Ints, count: int) -> Floats:
    """Weighted means (count,); 0 for an empty group."""
    total = np.bincount(groups, weights, count)
    mean: Floats = np.bincount(groups, weights * values, count) / np.maximum(total, 1e-300)
    return mean


def extra_variance(
    residuals: Floats, variances: Floats, freedom: float, clip: float = CLIP
) -> float:
    """The variance that all ``residuals`` (n,) have beyond their own ``variances`` (n,).

    ``freedom`` is the degrees of freedom of the residuals, at most n. Values beyond ``clip``
    deviations are clipped.
    """
    groups = np.zeros(len(residuals), np.int64)
    return float(extra_variances(residuals, variances, groups, np.array([freedom]), clip)[0])


def extra_variances(
    residuals: Floats, variances: Floats, groups: Ints, freedom: Floats, clip: float = CLIP
) -> Floats:
    """:func:`extra_variance` of each of ``groups``, numbers below ``len(freedom)``; (groups,).

    By Newton's method for all groups at once, within bounds that each step narrows. One over the
    mean of the squares is nearly linear in the extra variance.
    """
    count = len(freedom)
    size = np.maximum(np.bincount(groups, minlength=count), 1)
    target = _CLIPPED_MEAN[clip] * np.minimum(1.0, freedom / size)
    squares, most = residuals**2, clip**2

    def mean(values: Floats) -> Floats:
        total: Floats = np.bincount(groups, values, count) / size
        return total

    least = np.minimum(squares / (variances + 1e-18), most)
    varies = (freedom > 0.0) & (mean(least) > target)
    if not varies.any():
        return np.zeros(count)
    target = np.where(varies, target, np.inf)
    # Without its variances, and not clipped, a group would need this much.
    low, high = np.zeros(count), np.where(varies, mean(squares) / target, 1.0)
    largest = np.zeros(count)
    np.maximum.at(largest, groups, squares)
    extra = high = np.where(varies, np.minimum(high, 100.0 * largest), 1.0)
    for _ in range(MAX_STEPS):
        total = variances + extra[groups]
        ratios = squares / total
        value, within = mean(np.minimum(ratios, most)), ratios < most
        slope = mean(np.where(within, ratios / total, 0.0))
        more = value > target
        low, high = np.where(more, extra, low), np.where(more, high, extra)
        change = value * (value / target - 1.0)
        step = np.divide(change, slope, out=np.full(count, np.inf), where=slope > 0.0)
        remaining = varies & (np.abs(step) > PRECISION * extra)
        if not remaining.any():
            break
        following = extra + step
        is_inside = (following > low) & (following < high)
        following = np.where(is_inside, following, (low + high) / 2.0)
        extra = np.where(remaining, following, extra)
    return np.where(varies, extra, 0.0)


def moderate(variances: Floats, freedom: Floats) -> tuple[Floats, Floats]:
    """Shrink each of ``variances`` (n,) to what all make likely; also return degrees of freedom.

    ``freedom`` (n,) is that of each estimate, 0 if there was none; if there was none at all, the
    result has none either. Empirical Bayes (Smyth, "Linear models and empirical Bayes methods",
    2004): the true variances are scaled inverse chi-squared, with degrees of freedom that follow
    from the spread of the estimates' logarithms. If these differ no more than by chance, all
    variances are taken as equal.
    """
    known = freedom > 0.0
    if not known.any():
        return variances, np.zeros(len(variances))
    half = freedom[known] / 2.0
    logs = np.log(variances[known]) - digamma(half) + np.log(half)
    error2 = polygamma(1, half)
    between = _between(logs, error2)
    usual = float(np.average(logs, weights=1.0 / (error2 + between)))
    if between <= 0.0:
        total = float(freedom.sum())
        return np.full(len(variances), np.exp(usual)), np.full(len(variances), total)
    prior = 2.0 * _trigamma_inverse(between)
    usual = float(np.exp(usual + digamma(prior / 2.0) - np.log(prior / 2.0)))
    moderated = (prior * usual + freedom * np.where(known, variances, 0.0)) / (prior + freedom)
    return moderated, prior + freedom


def _between(values: Floats, variances: Floats) -> float:
    """Estimate the variance between the true values behind ``values`` (n,), which have errors with
    ``variances`` (n,), by moments (DerSimonian and Laird, 1986)."""
    weights = 1.0 / variances
    excess = float((weights * (values - np.average(values, weights=weights)) ** 2).sum())
    scale = float(weights.sum() - (weights**2).sum() / weights.sum())
    return max(0.0, (excess - (len(values) - 1.0)) / scale) if scale > 0.0 else 0.0


def _trigamma_inverse(value: float) -> float:
    """Invert trigamma by Newton's method on 1 / trigamma, which is convex and nearly linear."""
    place = 0.5 + 1.0 / value
    for _ in range(20):
        trigamma = float(polygamma(1, place))
        place += trigamma * (1.0 - trigamma / value) / float(polygamma(2, place))
    return place
