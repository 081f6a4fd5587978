"""Array types, named by what they hold."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

NONE: Ints = np.zeros(0, dtype=np.int64)
"""An empty array."""


def distinct(*numbers: Ints) -> Ints:
    """Return the distinct values of all ``numbers``, sorted.

    Like ``np.unique``, whose hash table (numpy 2.3 and later) takes 100 times as long for the
    numbers of a million columns, most of which are sorted already.
    """
    sorted_numbers = np.sort(np.concatenate([NONE, *numbers]), kind="stable")
    new = np.ones(len(sorted_numbers), dtype=np.bool_)
    np.not_equal(sorted_numbers[1:], sorted_numbers[:-1], out=new[1:])
    return sorted_numbers[new]


def distinct_rows(table: Ints) -> tuple[Ints, Ints]:
    """Return the distinct rows of ``table`` (n, columns), sorted, and each row's number (n,).

    Like ``np.unique`` with ``axis=0``, which takes ten times as long for few distinct rows of many,
    or for wide ones.
    """
    number = np.zeros(len(table), dtype=np.int64)
    for column in table.T:
        values = distinct(column)
        key = number * len(values) + np.searchsorted(values, column)
        keys = distinct(key)
        number = np.searchsorted(keys, key)
    rows = np.zeros((int(number.max(initial=-1)) + 1, table.shape[1]), dtype=np.int64)
    rows[number] = table
    return rows, number
