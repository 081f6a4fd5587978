"""How many GPUs the cores and the memory of a node are enough for."""

from __future__ import annotations

from fractions import Fraction
from math import floor

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from hopsd.core.placement.available import MOST, most_of

AMOUNTS = st.decimals(0, 2**50, allow_nan=False, places=7).map(Fraction) | st.fractions(0, 1000)


@given(
    idle=st.lists(st.integers(-MOST, MOST), min_size=1, max_size=4),
    base=AMOUNTS,
    each=AMOUNTS.filter(bool),
)
@example(idle=[MOST, 0, -MOST], base=Fraction(0), each=Fraction(1, 2**12))
@example(idle=[MOST, 0, -MOST], base=Fraction(2**50), each=Fraction(2**61 + 1, 2**11))
def test_as_many_as_fractions_say(idle: list[int], base: Fraction, each: Fraction) -> None:
    found = most_of(np.array(idle, dtype=np.int64), base, each)
    assert found.tolist() == [max(0, min(floor((count - base) / each), MOST)) for count in idle]
