"""Configurations: every placement open to a job (section 3.6 of the paper).

A placement ``{server: gpus}`` is a *shape*; many jobs can take the same one. A *column* is one
job with one shape. Columns live in flat arrays, sorted by job, so that a million of them cost
megabytes and milliseconds.

What a column takes is counted in *rows*: the GPUs of every server, the cores and the memory of
servers that could run short of them, and the limits that could bind. A job that needs a server for
itself takes all its GPUs. ``generate.py`` makes them.
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
"""Columns at once: 2 MB for each array."""


@dataclass(frozen=True, slots=True)
class Configurations:
    """All columns; those of job ``i`` are ``start[i]:start[i + 1]``; ``shape`` indexes ``shapes``.

    ``throughput``: samples per second of the whole job. ``present[i]``: the column that is
    where the job runs now, -1 for none. ``pool`` (servers,): the GPU type of each as a number;
    ``speed`` (servers,): its server factor, mean over the jobs.

    ``capacity`` (rows,): how much there is of each row, the GPUs of every server first.
    ``server`` (rows,): the server of each row, -1 for a limit. A column takes what the item
    ``shape`` of ``demands`` takes and, if limits could bind any job, the item ``share``.

    ``families``: sets of servers of jobs that are bound to racks, not all of which may be columns;
    ``leaf`` (servers,): a number for the leaf of each.

    ``segments``: of columns that are not written out; what stands for ``shape``, ``throughput`` and
    ``share`` then computes them where they are read.
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
    def short_of_more_than_gpus(self) -> bool:
        """Whether a server could run short of cores or memory."""
        return bool(np.any(self.server[len(self.pool) :] >= 0))

    def __len__(self) -> int:
        return len(self.shape)

    def slices(self) -> Iterator[tuple[int, int]]:
        """All columns in slices of whole jobs, not many at once: what is computed from a slice
        stays in the processor's cache, and never takes memory for all columns.
        """
        cuts = np.searchsorted(self.start, np.arange(0, len(self), SLICE))
        yield from pairwise(np.unique(np.append(self.start[cuts], len(self))).tolist())

    def of_shapes(self, of_items: npt.NDArray[Any], columns: slice | Ints) -> npt.NDArray[Any]:
        """The entry of ``of_items`` (items,) for the shape of each of some columns."""
        if self.segments is None or not isinstance(columns, slice):
            return of_items[self.shape[columns]]
        part = slice(*columns.indices(len(self))[:2])
        return self.segments.gather(of_items, self.segments.item, part)

    def with_segments(self, segments: Segments) -> Configurations:
        """The columns of ``segments``, not written out; ``start`` and ``present`` as they are."""
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
        """The same with all columns written out."""
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
        """The same columns, each with ``worth(speed, job)`` to the ``power`` in place of its speed.

        Of columns that are not written out, ``worth`` is asked for servers of factor 1, and a
        server's factor counts by its power: each has a factor of its job's and one of its shape's.
        """
        if self.segments is not None:
            return self.with_segments(self.segments.revalue(worth, power))
        values = np.empty(len(self))
        for first, last in self.slices():
            job = self.jobs_between(first, last)
            values[first:last] = worth(self.throughput[first:last], job) ** power
        return replace(self, throughput=values)

    def job_of_column(self) -> npt.NDArray[np.int32]:
        """The job of every column, (columns,)."""
        return np.repeat(np.arange(self.jobs, dtype=np.int32), np.diff(self.start))

    def jobs_of(self, columns: Ints) -> Ints:
        """The jobs of some columns."""
        jobs: Ints = np.searchsorted(self.start, columns, side="right") - 1
        return jobs

    def jobs_between(self, first: int, last: int) -> Ints:
        """The jobs of the columns ``first:last``, all of some jobs."""
        low, high = np.searchsorted(self.start, [first, last]).tolist()
        return np.repeat(np.arange(low, high), np.diff(self.start[low : high + 1]))

    def select(self, keep: Ints) -> Configurations:
        """Only the columns ``keep``, sorted; jobs keep their numbers."""
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
        """Only the segments ``selection`` of ``old``, this one's, and their columns' numbers here.

        Jobs keep their numbers.
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
