"""Find a job's best column that still fits without looking at all of its columns."""

from __future__ import annotations

import numpy as np

from hopsd.core.placement.program import Program, SegmentValues, segment_values
from hopsd.model.arrays import Floats
from hopsd.solver.bound.envelope import best_of_segments
from hopsd.solver.search.residual_capacity import ResidualCapacity

# Relative to the largest profit: envelopes round differently from the columns' own profits.
_ROUNDING = 1e-12
# A column is as good as the best if it is worth less by at most this share of the best one's value.
_EQUAL = 1e-4


class FreeColumns:
    """The columns that ``residual`` has room for, by their worth: value less ``cost`` (items,), by
    default value alone.

    With ``best_fit``, among columns as good as the best, which without server factors are most of a
    job's, the one that leaves the fewest GPUs on its servers is taken in place of the first.

    If columns are not written out, only those of a job's segments are searched that could hold its
    best column, since the most that each segment can be worth is known.
    """

    def __init__(
        self,
        program: Program,
        residual: ResidualCapacity,
        cost: Floats | None = None,
        *,
        best_fit: bool = False,
    ) -> None:
        self._program, self._residual, self._cost = program, residual, cost
        self._best_fit = best_fit
        self._values = segment_values(program)
        if self._values is not None:
            segments = self._values.segments
            self._maxima = _segment_maxima(program, self._values, cost)
            self._first = np.searchsorted(segments.start, program.configurations.start).tolist()

    def best(self, job: int, threshold: float = -np.inf) -> tuple[int, float]:
        """Return the job's best free column and its worth; -1 if none is worth more than
        ``threshold``.
        """
        if self._values is not None:
            return self._best_by_segment(self._values, job, threshold)
        start = self._program.configurations.start
        return self._best_of(slice(int(start[job]), int(start[job + 1])), threshold)

    def _best_by_segment(
        self, values: SegmentValues, job: int, threshold: float
    ) -> tuple[int, float]:
        first, end = self._first[job], self._first[job + 1]
        maxima, start = self._maxima[first:end], values.segments.start
        best = -1, threshold
        candidates = np.flatnonzero(
            (maxima > threshold) & self._residual.has_room(slice(first, end))
        )
        for number in candidates[np.argsort(-maxima[candidates], kind="stable")].tolist():
            if maxima[number] <= best[1]:
                break
            columns = slice(int(start[first + number]), int(start[first + number + 1]))
            column, worth = self._best_of(columns, best[1])
            if column >= 0:
                best = column, worth
        return best

    def _best_of(self, columns: slice, threshold: float) -> tuple[int, float]:
        """Like :meth:`best`, for a slice of the job's columns."""
        if columns.start == columns.stop:
            return -1, threshold
        fits = self._residual.fits(columns.start, columns.stop)
        if not fits.any():
            return -1, threshold
        program, cost = self._program, self._cost
        worth = program.value[columns] if cost is None else program.profit(cost, columns)
        free = np.where(fits, worth, -np.inf)
        best = int(np.argmax(free))
        if free[best] <= threshold:
            return -1, threshold
        if self._best_fit:
            least = free[best] - _EQUAL * program.value[columns.start + best]
            equal = np.flatnonzero((free >= least) & (free > threshold))
            shapes = program.configurations.shape[columns.start + equal].astype(np.int64)
            best = int(equal[np.argmin(self._residual.leftover(shapes))])
        return columns.start + best, float(free[best])


def _segment_maxima(program: Program, values: SegmentValues, cost: Floats | None) -> Floats:
    """Return an upper bound on the worth of each segment's columns, (segments,)."""
    if cost is None:
        return values.most()
    upper_bound, _ = best_of_segments(program, values, cost)
    upper_bound += _ROUNDING * np.abs(upper_bound).max(initial=0.0)
    return upper_bound
