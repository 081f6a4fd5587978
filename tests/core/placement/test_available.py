"""How many GPUs a node's cores and memory suffice for."""

from __future__ import annotations

from fractions import Fraction
from math import floor

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from hopsd.core.placement.available import NO_LIMIT, count_fits

AMOUNTS = st.decimals(0, 2**50, allow_nan=False, places=7).map(Fraction) | st.fractions(0, 1000)


@given(
    idle=st.lists(st.integers(-NO_LIMIT, NO_LIMIT), min_size=1, max_size=4),
    base=AMOUNTS,
    per_gpu=AMOUNTS.filter(bool),
)
@example(idle=[NO_LIMIT, 0, -NO_LIMIT], base=Fraction(0), per_gpu=Fraction(1, 2**12))
@example(idle=[NO_LIMIT, 0, -NO_LIMIT], base=Fraction(2**50), per_gpu=Fraction(2**61 + 1, 2**11))
def test_available_gpus_equal_those_of_exact_fractions(
    idle: list[int], base: Fraction, per_gpu: Fraction
) -> None:
    counts = count_fits(np.array(idle, dtype=np.int64), base, per_gpu)
    exact = [max(0, min(floor((count - base) / per_gpu), NO_LIMIT)) for count in idle]
    assert counts.tolist() == exact
