"""Distinct numbers of several arrays, and distinct rows of one."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hopsd.model.arrays import distinct, distinct_rows

NUMBERS = st.lists(st.integers(-5, 5)).map(lambda numbers: np.array(numbers, dtype=np.int64))


@given(st.lists(NUMBERS))
def test_distinct_numbers_equal_those_of_a_set(parts: list[np.ndarray]) -> None:
    numbers = distinct(*parts)
    assert numbers.dtype == np.int64
    assert numbers.tolist() == sorted({n for part in parts for n in part.tolist()})


@given(st.lists(st.tuples(*[st.integers(-2, 2)] * 3), min_size=1))
def test_distinct_rows_equal_numpys(table: list[tuple[int, int, int]]) -> None:
    rows, number = distinct_rows(np.array(table, dtype=np.int64))
    expected, inverse = np.unique(np.array(table), axis=0, return_inverse=True)
    assert rows.tolist() == expected.tolist()
    assert number.tolist() == inverse.ravel().tolist()
