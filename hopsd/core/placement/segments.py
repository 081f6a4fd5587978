"""Columns that are not written out.

If jobs share their shapes, each of them has a column for every shape, so the number of columns is
about jobs times servers. A *segment* is one job with all the shapes of a block: their items and
slowness are stored once for the block, and the figures of a column are computed when they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from hopsd.core.placement.shapes import ramp
from hopsd.model.arrays import Bools, Floats, Ints


@dataclass(frozen=True, slots=True)
class Block:
    """The ``segments`` that have the same ``count`` items from ``item`` on, and the same slowness.

    ``order`` (count,): the items from the fastest to the slowest; ``slowness`` (count,): theirs.
    """

    segments: Ints
    item: int
    order: Ints
    slowness: Floats


@dataclass(frozen=True, slots=True)
class Segments:
    """Segment ``k`` is the columns ``start[k]:start[k + 1]`` of ``job[k]``, sorted.

    Its ``n``-th column takes the item ``item[k] + n``, and runs at ``per_gpu[k] * slowness[at[k] +
    n] * size[k]`` samples per second, with ``size`` in GPUs. ``share`` (segments,): the items for
    limits. ``blocks``: all segments with more than one column.
    """

    start: Ints
    job: Ints
    item: Ints
    per_gpu: Floats
    at: Ints
    size: Floats
    slowness: Floats
    blocks: tuple[Block, ...]
    share: npt.NDArray[np.int32] | None = None

    @classmethod
    def build(
        cls,
        start: Ints,
        job: Ints,
        item: Ints,
        per_gpu: Floats,
        offset: Ints,
        size: Floats,
        slowness: Floats,
    ) -> Segments:
        """Build segments with their blocks."""
        return cls(
            start,
            job,
            item,
            per_gpu,
            offset,
            size,
            slowness,
            _blocks(start, item, offset, slowness),
        )

    def __len__(self) -> int:
        return len(self.job)

    @property
    def columns(self) -> int:
        """Number of columns."""
        return int(self.start[-1])

    def find(self, columns: Ints) -> Ints:
        """Return the segments of some columns."""
        segments: Ints = np.searchsorted(self.start, columns, side="right") - 1
        return segments

    def overlap(self, columns: slice) -> tuple[slice, Ints, Ints]:
        """Return the segments of a slice of columns, its first column in each, and its length."""
        low = int(np.searchsorted(self.start, columns.start, side="right")) - 1
        high = int(np.searchsorted(self.start, columns.stop))
        bounds = self.start[low : high + 1]
        begin = np.maximum(bounds[:-1], columns.start)
        return slice(low, high), begin - bounds[:-1], np.minimum(bounds[1:], columns.stop) - begin

    def gather(self, flat: npt.NDArray[Any], first: Ints, columns: slice) -> npt.NDArray[Any]:
        """Return ``flat[first[k] + n]`` for the ``n``-th column of each segment ``k``."""
        if columns.start >= columns.stop:
            return flat[:0].copy()
        segments, begin, count = self.overlap(columns)
        low = first[segments] + begin
        parts = zip(low.tolist(), (low + count).tolist(), strict=True)
        return np.concatenate([flat[a:b] for a, b in parts])

    def repeat(self, values: npt.NDArray[Any], columns: slice) -> npt.NDArray[Any]:
        """Return ``values[k]`` for every column of each segment ``k``."""
        if columns.start >= columns.stop:
            return values[:0].copy()
        segments, _, count = self.overlap(columns)
        return np.repeat(values[segments], count)

    def shapes_of(self, selection: slice | Ints) -> npt.NDArray[np.int32]:
        """Return the shapes of some columns."""
        if isinstance(selection, slice):
            columns = np.arange(selection.start, selection.stop)
            item_shapes = columns + self.repeat(self.item - self.start[:-1], selection)
        else:
            segments = self.find(selection)
            item_shapes = selection - self.start[segments] + self.item[segments]
        shapes: npt.NDArray[np.int32] = item_shapes.astype(np.int32)
        return shapes

    def throughput_of(self, columns: slice | Ints) -> Floats:
        """Return the samples per second of some columns."""
        slow, spread_out = self.slowness_of(columns)
        throughput: Floats = spread_out(self.per_gpu) * slow * spread_out(self.size)
        return throughput

    def shares_of(self, columns: slice | Ints) -> npt.NDArray[np.int32]:
        """Return the items for limits of some columns."""
        if self.share is None:
            raise ValueError("no limit binds any column")
        if isinstance(columns, slice):
            shares: npt.NDArray[np.int32] = self.repeat(self.share, columns)
        else:
            shares = self.share[self.find(columns)]
        return shares

    def slowness_of(self, columns: slice | Ints) -> tuple[Floats, Callable[[Floats], Floats]]:
        """Return the slowness of some columns, and a function that maps segment values to them."""
        if isinstance(columns, slice):
            part = columns
            return self.gather(self.slowness, self.at, columns), lambda v: self.repeat(v, part)
        segments = self.find(columns)
        return self.slowness[self.at[segments] + columns - self.start[segments]], lambda v: v[
            segments
        ]

    def extremes(self) -> tuple[Floats, Floats, Floats]:
        """Return the smallest, the mean and the largest slowness of each segment."""
        minima = self.slowness[self.at]
        mean, maxima = minima.copy(), minima.copy()
        for block in self.blocks:
            minima[block.segments] = block.slowness[-1]
            mean[block.segments] = block.slowness.mean()
            maxima[block.segments] = block.slowness[0]
        return minima, mean, maxima

    def revalue(self, worth: Callable[[Floats, Ints], Floats], power: float) -> Segments:
        """See :meth:`Configurations.revalue`."""
        blocks = [replace(block, slowness=block.slowness**power) for block in self.blocks]
        return replace(
            self,
            per_gpu=worth(self.per_gpu * self.size, self.job) ** power,
            size=np.ones(len(self)),
            slowness=self.slowness**power,
            blocks=tuple(blocks),
        )

    def first_by_job(self) -> Ints:
        """Return the first segment of each job that has any."""
        return np.flatnonzero(np.append(True, self.job[1:] != self.job[:-1])[: len(self.job)])

    def columns_of(self, segments: Ints) -> Ints:
        """Return the columns of the segments ``segments`` (sorted)."""
        count = self.start[segments + 1] - self.start[segments]
        return np.repeat(self.start[segments], count) + ramp(count)

    def in_parts(self, segments: Ints, limit: int) -> Iterator[Ints]:
        """Yield the segments ``segments`` in parts of about ``limit`` columns."""
        ends = np.cumsum(self.start[segments + 1] - self.start[segments])
        cuts = np.searchsorted(ends, np.arange(limit, int(ends[-1]) if len(ends) else 0, limit))
        yield from (part for part in np.split(segments, np.unique(cuts)) if len(part))

    def with_items(self, selection: Bools, items: Bools) -> Ints:
        """Return the columns of the segments ``selection`` that take one of ``items``, sorted."""
        before = np.concatenate([[0], np.cumsum(items)])
        numbers, segments = np.flatnonzero(items), np.flatnonzero(selection)
        item, length = self.item[segments], self.start[segments + 1] - self.start[segments]
        count = before[item + length] - before[item]
        place = numbers[np.repeat(before[item], count) + ramp(count)]
        return place + np.repeat(self.start[segments] - item, count)

    def select(self, selection: Bools) -> Segments:
        """Return only the segments ``selection``; their columns are renumbered."""
        lengths = np.diff(self.start)[selection]
        start = np.concatenate([[0], np.cumsum(lengths)])
        item, offset = self.item[selection], self.at[selection]
        return Segments(
            start,
            self.job[selection],
            item,
            self.per_gpu[selection],
            offset,
            self.size[selection],
            self.slowness,
            _blocks(start, item, offset, self.slowness),
            None if self.share is None else self.share[selection],
        )


@dataclass(frozen=True, slots=True)
class UnwrittenSegments:
    """Stands in for an array over columns; each part is computed when it is read."""

    length: int
    values_of: Callable[[Any], npt.NDArray[Any]]

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            first, last, _ = index.indices(self.length)
            return self.values_of(slice(first, max(first, last)))
        numbers = np.asarray(index)
        if not numbers.ndim:
            return self.values_of(numbers.reshape(1) % self.length)[0]
        # As with an array, -1 is the last index.
        return (
            self.values_of(numbers % self.length) if len(numbers) else self.values_of(slice(0, 0))
        )

    def __array__(self, dtype: Any = None, copy: Any = None) -> npt.NDArray[Any]:
        return np.asarray(self[:], dtype=dtype)


def _blocks(start: Ints, item: Ints, offset: Ints, slowness: Floats) -> tuple[Block, ...]:
    several = np.flatnonzero(np.diff(start) > 1)
    if not len(several):
        return ()
    order = several[np.lexsort((several, offset[several], item[several]))]
    changes = (np.diff(item[order]) != 0) | (np.diff(offset[order]) != 0)
    blocks = []
    for segments in np.split(order, np.flatnonzero(changes) + 1):
        first = int(segments[0])
        values = slowness[offset[first] : offset[first] + start[first + 1] - start[first]]
        fastest = np.argsort(-values, kind="stable")
        blocks.append(Block(segments, int(item[first]), fastest, values[fastest]))
    return tuple(blocks)
