"""Configurations: every placement open to a job (section 3.6 of the paper).

A placement ``{server: gpus}`` is a *shape*; many jobs can take the same one. A *column* is one
job with one shape. Columns live in flat arrays, sorted by job, so that a million of them cost
megabytes and milliseconds.

What a column takes is counted in *rows*: the GPUs of every server, the cores and the memory of
servers that could run short of them, and the limits that could bind. A job that needs a server for
itself takes all its GPUs. ``generate.py`` makes the configurations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from hopsd.core.placement.demands import Demands
from hopsd.core.placement.rack_sets import RackFamily
from hopsd.core.placement.segments import Segments, UnwrittenSegments
from hopsd.core.placement.shapes import Shapes
from hopsd.model.arrays import Bools, Floats, Ints

SLICE = 1 << 18
"""Columns that are processed at once: 2 MB for each array."""


@dataclass(frozen=True, slots=True)
class Configurations:
    """All columns; those of job ``i`` are ``start[i]:start[i + 1]``; ``shape`` indexes ``shapes``.

    ``throughput``: samples per second of the whole job. ``present[i]``: the column where the job
    runs now, -1 for none. ``pool`` (servers,): the GPU type of each server as a number; ``speed``
    (servers,): its server factor, as the mean over the jobs.

    ``capacity`` (rows,): how much there is of each row; the first rows are the GPUs of the servers.
    ``server`` (rows,): the server of each row, -1 for a limit. A column takes what the item
    ``shape`` of ``demands`` takes and, if limits could bind any job, also the item ``share``.

    ``families``: sets of servers of jobs that are bound to racks, not all of which may be columns;
    ``leaf`` (servers,): a number for the leaf of each server.

    ``segments``: set if columns are not written out; ``shape``, ``throughput`` and ``share`` are
    then stand-ins that compute values when they are read.
    """

    start: Ints
    shape: npt.NDArray[np.int32]
    throughput: Floats
    present: Ints
    shapes: Shapes
    pool: Ints
    speed: Floats
    demands: Demands
    capacity: Ints
    server: Ints
    share: npt.NDArray[np.int32] | None = None
    segments: Segments | None = None
    families: tuple[RackFamily, ...] = ()
    leaf: Ints | None = None

    @property
    def jobs(self) -> int:
        """The number of jobs."""
        return len(self.start) - 1

    @property
    def lists_all_sets(self) -> bool:
        """Whether all sets of servers of rack-bound jobs are columns."""
        return all(family.complete for family in self.families)

    @property
    def short_of_more_than_gpus(self) -> bool:
        """Whether a server could run short of cores or memory."""
        return bool(np.any(self.server[len(self.pool) :] >= 0))

    def __len__(self) -> int:
        return len(self.shape)

    def slices(self) -> Iterator[tuple[int, int]]:
        """Yield all columns in slices of whole jobs.

        A slice is small enough that what is computed from it stays in the processor's cache, and
        never takes memory for all columns.
        """
        cuts = np.searchsorted(self.start, np.arange(0, len(self), SLICE))
        yield from pairwise(np.unique(np.append(self.start[cuts], len(self))).tolist())

    def shape_values(
        self, item_values: npt.NDArray[Any], columns: slice | Ints
    ) -> npt.NDArray[Any]:
        """Return the entry of ``item_values`` (items,) for the shape of each of some columns."""
        if self.segments is None or not isinstance(columns, slice):
            return item_values[self.shape[columns]]
        part = slice(*columns.indices(len(self))[:2])
        return self.segments.gather(item_values, self.segments.item, part)

    def with_segments(self, segments: Segments) -> Configurations:
        """Return the columns of ``segments``, not written out; ``start`` and ``present`` remain."""
        share, length = segments.share, segments.columns
        return replace(
            self,
            shape=cast(npt.NDArray[np.int32], UnwrittenSegments(length, segments.shapes_of)),
            throughput=cast(Floats, UnwrittenSegments(length, segments.throughput_of)),
            share=None
            if share is None
            else cast(npt.NDArray[np.int32], UnwrittenSegments(length, segments.shares_of)),
            segments=segments,
        )

    def write_out(self) -> Configurations:
        """Return a copy with all columns written out."""
        if self.segments is None:
            return self
        shape, throughput = np.empty(len(self), dtype=np.int32), np.empty(len(self))
        share = None if self.share is None else np.empty_like(shape)
        for part in (slice(first, last) for first, last in self.slices()):
            shape[part], throughput[part] = self.shape[part], self.throughput[part]
            if share is not None and self.share is not None:
                share[part] = self.share[part]
        return replace(self, shape=shape, throughput=throughput, share=share, segments=None)

    def revalue(self, worth: Callable[[Floats, Ints], Floats], power: float) -> Configurations:
        """Replace the speed of each column by ``worth(speed, job)`` to the ``power``.

        For columns that are not written out, ``worth`` is computed for servers of factor 1, and
        server factors are raised to the power: a column's value is a factor of its job times one
        of its shape.
        """
        if self.segments is not None:
            return self.with_segments(self.segments.revalue(worth, power))
        values = np.empty(len(self))
        for first, last in self.slices():
            job = self.jobs_between(first, last)
            values[first:last] = worth(self.throughput[first:last], job) ** power
        return replace(self, throughput=values)

    def job_of_column(self) -> npt.NDArray[np.int32]:
        """Return the job of each column, (columns,)."""
        return np.repeat(np.arange(self.jobs, dtype=np.int32), np.diff(self.start))

    def jobs_of(self, columns: Ints) -> Ints:
        """Return the jobs of some columns."""
        jobs: Ints = np.searchsorted(self.start, columns, side="right") - 1
        return jobs

    def jobs_between(self, first: int, last: int) -> Ints:
        """Return the jobs of the columns ``first:last``, which are all columns of some jobs."""
        low, high = np.searchsorted(self.start, [first, last]).tolist()
        return np.repeat(np.arange(low, high), np.diff(self.start[low : high + 1]))

    def select(self, keep: Ints) -> Configurations:
        """Return only the columns ``keep`` (sorted); jobs keep their numbers."""
        stays = (self.present >= 0) & np.isin(self.present, keep)
        return replace(
            self,
            start=np.searchsorted(keep, self.start),
            shape=self.shape[keep],
            share=None if self.share is None else self.share[keep],
            throughput=self.throughput[keep],
            segments=None,
            families=(),
            present=np.where(stays, np.searchsorted(keep, self.present), -1),
        )

    def some_segments(self, old: Segments, selection: Bools) -> tuple[Configurations, Ints]:
        """Return only the segments ``selection`` of ``old``, the segments of these configurations.

        Also returns the numbers that the selected columns have here. Jobs keep their numbers.
        """
        new = old.select(selection)
        shift = old.start[:-1][selection] - new.start[:-1]

        def before(columns: slice | Ints) -> Ints:
            if isinstance(columns, slice):
                positions: Ints = np.arange(columns.start, columns.stop) + new.repeat(
                    shift, columns
                )
                return positions
            return columns + shift[new.find(columns)]

        numbers = cast(Ints, UnwrittenSegments(new.columns, before))
        new_index = np.where(selection, np.cumsum(selection) - 1, -1)
        segment = new_index[old.find(np.maximum(self.present, 0))]
        stays = (self.present >= 0) & (segment >= 0)
        present = np.where(stays, self.present - shift[segment] if len(shift) else -1, -1)
        count = np.bincount(new.job, np.diff(new.start), minlength=self.jobs).astype(np.int64)
        start = np.concatenate([[0], np.cumsum(count)])
        part = replace(self, start=start, present=present, families=())
        return part.with_segments(new), numbers
