"""Statistics by groups equal those of each group alone."""

from __future__ import annotations

import numpy as np
import pytest

from hopsd.health.robust import (
    CLIP,
    FIRM_CLIP,
    Floats,
    distinct_counts,
    extra_variance,
    extra_variances,
    group_medians,
)


def clipped_mean(residuals: Floats, variances: Floats, clip: float) -> float:
    return float(np.minimum(residuals**2 / variances, clip**2).mean())


@pytest.mark.parametrize("clip", [CLIP, FIRM_CLIP])
@pytest.mark.parametrize("extra", [0.0, 0.01, 0.2])
def test_with_the_extra_variance_clipped_residuals_are_as_large_as_normal_ones(
    clip: float, extra: float
) -> None:
    random = np.random.default_rng(3)
    variances = random.uniform(0.5, 2.0, 4000) * 0.02**2
    residuals = random.normal(0.0, np.sqrt(variances + extra**2))
    found = extra_variance(residuals, variances, 4000.0, clip)
    usual = clipped_mean(random.normal(size=100_000), np.ones(100_000), clip)
    assert clipped_mean(residuals, variances + found, clip) == pytest.approx(usual, rel=0.05)
    assert np.sqrt(found) == pytest.approx(extra, abs=0.005, rel=0.05)


@pytest.mark.parametrize("clip", [CLIP, FIRM_CLIP])
def test_the_extra_variance_of_values_with_outliers_is_exact(clip: float) -> None:
    random = np.random.default_rng(4)
    groups, scale = np.repeat(np.arange(200), 8), 10.0 ** random.uniform(-8.0, 0.0, 1600)
    variances = random.uniform(0.0, 1.0, 1600) * scale
    residuals = random.standard_t(1.5, 1600) * np.sqrt(scale)
    found = extra_variances(residuals, variances, groups, np.full(200, 7.0, np.float64), clip)
    means = np.array(
        [
            clipped_mean(residuals[groups == g], variances[groups == g] + found[g], clip)
            for g in np.flatnonzero(found)
        ]
    )
    assert len(means) > 50
    assert means == pytest.approx(np.full(len(means), means[0]), rel=1e-9)


def test_many_groups_at_once_give_the_same_as_each_alone() -> None:
    random = np.random.default_rng(5)
    groups = random.integers(0, 50, 600)
    groups[groups == 7] = 8  # leaves group 7 empty
    variances = random.uniform(0.0, 1.0, 600) * (groups != 9)
    residuals = random.standard_t(2.0, 600) * (groups != 10)
    freedom = np.bincount(groups, minlength=50) - 1.0
    together = extra_variances(residuals, variances, groups, freedom)
    alone = [
        extra_variance(residuals[groups == g], variances[groups == g], freedom[g])
        for g in range(50)
    ]
    assert together == pytest.approx(alone, rel=1e-12)
    assert together[7] == together[10] == 0.0
    assert together[9] > 0.0


def test_empty_groups_have_no_variance() -> None:
    nothing = np.zeros(0)
    groups = nothing.astype(np.int64)
    assert extra_variances(nothing, nothing, groups, np.zeros(2)).tolist() == [0.0, 0.0]
    assert extra_variance(nothing, nothing, 3.0) == 0.0
    assert distinct_counts(groups, groups, 2).tolist() == [0, 0]
    assert np.isnan(group_medians(nothing, groups, 1)).all()


def test_equal_values_of_a_group_are_counted_once() -> None:
    groups = np.array([2, 0, 0, 2, 2, 0])
    values = np.array([5, 1, 1, 5, 6, 1])
    assert distinct_counts(values, groups, 4).tolist() == [1, 0, 2, 0]
