"""The union of the numbers in several arrays."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hopsd.model.arrays import distinct

NUMBERS = st.lists(st.integers(-5, 5)).map(lambda numbers: np.array(numbers, dtype=np.int64))


@given(st.lists(NUMBERS))
def test_distinct_numbers_equal_those_of_a_set(parts: list[np.ndarray]) -> None:
    numbers = distinct(*parts)
    assert numbers.dtype == np.int64
    assert numbers.tolist() == sorted({n for part in parts for n in part.tolist()})
