"""Array types, named by what they hold."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

NONE: Ints = np.zeros(0, dtype=np.int64)
"""No numbers."""
