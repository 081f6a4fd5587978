"""Run times extrapolated from two short samples."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.allox.sampling import Sample, run_seconds
from hopsd.errors import InputError


@given(st.floats(0.0, 100.0), st.floats(0.01, 10.0), st.floats(1.0, 50.0), st.floats(51.0, 99.0))
def test_start_up_time_and_pace_are_recovered_without_noise(
    start: float, pace: float, short: float, long: float
) -> None:
    samples = [Sample(n, start + pace * n) for n in (long, short)]
    assert run_seconds(samples[0], samples[1], 1e4) == pytest.approx(start + pace * 1e4)


def test_contradicting_samples_count_by_their_mean() -> None:
    assert run_seconds(Sample(1.0, 5.0), Sample(2.0, 4.0), 100.0) == 200.0


def test_two_samples_of_equal_length_predict_nothing() -> None:
    with pytest.raises(InputError, match="samples of 3 and 3 iterations; give two lengths"):
        run_seconds(Sample(3.0, 5.0), Sample(3.0, 5.0), 100.0)
