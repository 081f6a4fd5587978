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
