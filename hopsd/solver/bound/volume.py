"""The volume algorithm: prices by descent, and of what they choose the mean, a fractional solution.

At each step's prices every job takes its most profitable column. The mean of these choices comes
close to a solution of the linear program (Barahona and Anbil, Math. Programming 87, 2000), which is
all that cuts and a dive need of it: on 2,048 fragmented GPUs with scarce cores and memory 300 steps
take 0.1 s, where the simplex method takes 3 s from the last basis.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from hopsd.model.arrays import Floats, Ints
from hopsd.solver.bound.dual_prices import polyak_steps

# Profits that differ by less than this share of the largest are equal.
_TIED = 1e-9


@dataclass(frozen=True, slots=True)
class Packing:
    """Choose at most one column a job, of most ``value`` (n,), within ``matrix @ x <= limit``.

    ``job`` (n,), sorted; ``matrix`` (rows, n) and ``by_column``, its transpose; ``limit`` (rows,).
    """

    value: Floats
    job: Ints
    matrix: Any  # scipy's csr_array, which is slow to import
    by_column: Any
    limit: Floats

    @classmethod
    def of(
        cls, value: Floats, job: Ints, entries: tuple[Ints, Ints, Floats], limit: Floats
    ) -> Packing:
        """From ``entries`` of the matrix: columns, rows and amounts."""
        from scipy.sparse import csr_array  # noqa: PLC0415  # slow to import

        column, row, amount = entries
        by_column = csr_array((amount, (column, row)), shape=(len(value), len(limit)))
        return cls(value, job, by_column.T.tocsr(), by_column, limit)

    def bound(self, prices: Floats) -> float:
        """The Lagrangian bound of ``prices`` (rows,)."""
        return _Dual(self)(prices)[0]

    def some(self, columns: Ints, limit: Floats) -> Packing:
        """Only some ``columns`` (by position, sorted), within another ``limit``."""
        by_column = self.by_column[columns]
        return Packing(
            self.value[columns], self.job[columns], by_column.T.tocsr(), by_column, limit
        )


class _Dual:
    """The Lagrangian dual of a packing; ``x`` (n,): what the last prices chose."""

    def __init__(self, packing: Packing) -> None:
        self._packing, self.x = packing, np.zeros(len(packing.value))
        job = packing.job
        self._first = np.flatnonzero(np.append(True, job[1:] != job[:-1]))
        self._lengths = np.diff(np.append(self._first, len(job)))

    def __call__(self, prices: Floats) -> tuple[float, Floats]:
        packing, first, lengths = self._packing, self._first, self._lengths
        profit = packing.value - packing.by_column @ prices
        best = np.maximum.reduceat(profit, first)
        tied = np.where(best > 0.0, best - _TIED * best.max(initial=0.0), inf)
        chosen = (profit >= np.repeat(tied, lengths)).astype(np.float64)
        self.x = chosen / np.repeat(np.maximum(1.0, np.add.reduceat(chosen, first)), lengths)
        bound = float(np.maximum(best, 0.0).sum() + np.einsum("i,i", prices, packing.limit))
        return bound, packing.limit - packing.matrix @ self.x


@dataclass(frozen=True, slots=True)
class Descent:
    """The step with the lowest ``bound`` on the packing and its ``prices`` (rows,), the ``mean``
    prices of the last half, and the mean choice ``x`` (n,) there.
    """

    bound: float
    prices: Floats
    mean: Floats
    x: Floats


def descend(
    packing: Packing, start: Floats, floor: float, steps: int, pace: float, give_up: float
) -> Descent:
    """Polyak's ``steps`` towards ``floor`` from the prices ``start`` (rows,), at a ``pace`` of 1 or
    less; as many as there is time for before ``give_up`` (monotonic seconds).
    """
    dual = _Dual(packing)
    best, prices = inf, start
    mean, x, count = np.zeros(len(start)), np.zeros(len(packing.value)), 0
    for number, (bound, point) in enumerate(_steps(dual, start, floor, steps, pace, give_up)):
        if bound < best:
            best, prices = bound, point
        if number == steps // 2:
            mean, x, count = np.zeros(len(mean)), np.zeros(len(x)), 0
        mean, x, count = mean + point, x + dual.x, count + 1
    return Descent(best, prices, mean / max(1, count), x / max(1, count))


def _steps(
    dual: _Dual, start: Floats, floor: float, steps: int, pace: float, give_up: float
) -> Iterator[tuple[float, Floats]]:
    if len(dual.x):
        yield from polyak_steps(dual, start, floor, steps, give_up, pace)
