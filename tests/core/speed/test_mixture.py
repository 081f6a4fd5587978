"""Fits two modes if there are two, and one if there is one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hopsd.core.speed.mixture import (
    BINS_PER_DECADE,
    SMALLEST_SECONDS,
    Mixture,
    bin_centers,
    fit,
    fit_bins,
)


def histogram(seconds: np.ndarray) -> dict[int, float]:
    bins: dict[int, float] = {}
    for value in np.maximum(seconds, SMALLEST_SECONDS):
        bin_ = int(BINS_PER_DECADE * np.log10(value / SMALLEST_SECONDS))
        bins[bin_] = bins.get(bin_, 0.0) + 1.0
    return bins


def sample_seconds(seed: int, count: int, p_cache: float, cache: float, load: float) -> np.ndarray:
    random = np.random.default_rng(seed)
    from_cache = random.random(count) < p_cache
    return np.where(
        from_cache, random.normal(cache, 0.1 * cache, count), random.normal(load, 0.1 * load, count)
    )


@given(
    seed=st.integers(0, 2**32 - 1),
    p_cache=st.floats(0.1, 0.9),
    cache=st.floats(1e-4, 1e-1),
    distance=st.floats(3.0, 1000.0),
)
def test_two_modes_are_found(seed: int, p_cache: float, cache: float, distance: float) -> None:
    seconds = sample_seconds(seed, 2000, p_cache, cache, distance * cache)
    mixture = fit_bins(histogram(seconds))
    assert mixture.p_cache == pytest.approx(p_cache, abs=0.05)
    # With as few as 200 draws of 10 % deviation, the mean of one draw in a thousand is 3 % off.
    assert mixture.mu_cache == pytest.approx(cache, rel=0.06)
    assert mixture.mu_load == pytest.approx(distance * cache, rel=0.03)
    assert mixture.sigma_load == pytest.approx(0.1 * distance * cache, rel=0.25)
    assert mixture.mean == pytest.approx(float(seconds.mean()), rel=0.03)


@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.sampled_from([500, 5000]),
    mean=st.floats(1e-4, 10.0),
    spread=st.floats(0.0, 0.25),
)
def test_one_mode_stays_one(seed: int, count: int, mean: float, spread: float) -> None:
    seconds = np.random.default_rng(seed).normal(mean, spread * mean, count)
    mixture = fit_bins(histogram(seconds))
    assert mixture.p_cache == 1.0
    assert mixture.mean == pytest.approx(float(np.maximum(seconds, 0.0).mean()), rel=0.05)


@pytest.mark.long
@pytest.mark.parametrize("count", [10, 50])
def test_few_values_of_one_mode_seldom_look_like_two(count: int) -> None:
    """By chance they may: 19 of 8,000 draws of ten values did."""
    draws = [np.random.default_rng(seed).normal(1.0, 0.25, count) for seed in range(500)]
    mixtures = [fit_bins(histogram(seconds)) for seconds in draws]
    assert sum(mixture.p_cache < 1.0 for mixture in mixtures) <= 5
    for mixture, seconds in zip(mixtures, draws, strict=True):
        assert mixture.mean == pytest.approx(float(np.maximum(seconds, 0.0).mean()), rel=0.05)


def test_a_long_tail_is_not_a_second_mode() -> None:
    seconds = np.random.default_rng(1).lognormal(np.log(0.01), 0.4, 5000)
    assert fit_bins(histogram(seconds)).p_cache == 1.0


def test_rare_loads_are_a_separate_mode() -> None:
    mixture = fit_bins({90: 990.0, 130: 10.0})
    assert mixture.p_cache == pytest.approx(0.99)
    assert mixture.mu_load == pytest.approx(float(bin_centers([130])[0]))


def test_no_value_or_one_value_is_one_mode() -> None:
    assert fit_bins({}) == Mixture(1.0, 0.0, 0.0)
    single = fit_bins({100: 3.0})
    assert (single.p_cache, single.mu_cache) == pytest.approx((1.0, float(bin_centers([100])[0])))
    assert fit_bins({100: 3.0, 150: 1.0}).p_cache == 1.0


def test_old_records_weigh_less() -> None:
    seconds = np.array([0.01, 1.0])
    assert fit(seconds, np.array([100.0, 50.0])).p_cache == pytest.approx(2 / 3)
    assert fit(seconds, np.array([100.0, 10.0])).p_cache == pytest.approx(10 / 11)


def test_each_time_belongs_to_its_own_mode() -> None:
    mixture = fit_bins({90: 60.0, 130: 40.0})
    assert mixture.share_cache(bin_centers([90, 130])) == pytest.approx([1.0, 0.0], abs=1e-6)
    assert Mixture(1.0, 0.5, 0.1).share_cache(bin_centers([90, 130])).tolist() == [1.0, 1.0]


@example(bins={0: 1e9, 1: 1e9, 250: 1e-9})
@given(st.dictionaries(st.integers(0, 288), st.floats(1e-6, 1e9), max_size=40))
def test_any_report_gives_finite_figures(bins: dict[int, float]) -> None:
    mixture = fit_bins(bins)
    figures = (
        mixture.p_cache,
        mixture.mu_cache,
        mixture.sigma_cache,
        mixture.mu_load,
        mixture.sigma_load,
    )
    assert all(np.isfinite(figures))
    assert 0.0 <= mixture.p_cache <= 1.0
    if bins:
        assert (
            bin_centers([min(bins)])[0] * 0.99 <= mixture.mean <= bin_centers([max(bins)])[0] * 1.01
        )


def test_bins_equal_those_of_the_profiler() -> None:
    series = pytest.importorskip("hops_profiler.timing.series")
    assert (series.BINS_PER_DECADE, series.MIN_TIME) == (BINS_PER_DECADE, SMALLEST_SECONDS)
    assert bin_centers([100])[0] == pytest.approx(SMALLEST_SECONDS * 10 ** (100.5 / 24))
