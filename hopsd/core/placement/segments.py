"""Columns that are not written out.

Jobs that share their shapes have, each, a column for every one of them, so there are about jobs
times servers. A *segment* is one job with all the shapes of a block: their items and slowness are
stored once for the block, and a column's figures are computed where they are read.
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

    ``order`` (count,): the items from the fastest to the slowest. ``slowness`` (count,): theirs.
    """

    segments: Ints
    item: int
    order: Ints
    slowness: Floats


@dataclass(frozen=True, slots=True)
class Segments:
    """Segment ``k`` is the columns ``start[k]:start[k + 1]`` of ``job[k]``, sorted.

    Its ``n``-th column takes the item ``item[k] + n``, and runs at ``per_gpu[k] * slowness[at[k] +
    n] * size[k]`` samples per second, ``size`` in GPUs. ``share`` (segments,): the items of limits.
    ``blocks``: all segments of more than one column.
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
    def of(
        cls,
        start: Ints,
        job: Ints,
        item: Ints,
        per_gpu: Floats,
        at: Ints,
        size: Floats,
        slowness: Floats,
    ) -> Segments:
        """Segments with their blocks."""
        return cls(
            start, job, item, per_gpu, at, size, slowness, _blocks(start, item, at, slowness)
        )

    def __len__(self) -> int:
        return len(self.job)

    @property
    def columns(self) -> int:
        """The number of columns."""
        return int(self.start[-1])

    def find(self, columns: Ints) -> Ints:
        """The segments of some columns."""
        found: Ints = np.searchsorted(self.start, columns, side="right") - 1
        return found

    def between(self, which: slice) -> tuple[slice, Ints, Ints]:
        """The segments of a slice of columns; where it begins in each, and its columns there."""
        low = int(np.searchsorted(self.start, which.start, side="right")) - 1
        high = int(np.searchsorted(self.start, which.stop))
        own = self.start[low : high + 1]
        begin = np.maximum(own[:-1], which.start)
        return slice(low, high), begin - own[:-1], np.minimum(own[1:], which.stop) - begin

    def gather(self, flat: npt.NDArray[Any], first: Ints, which: slice) -> npt.NDArray[Any]:
        """``flat[first[k] + n]`` for the ``n``-th column of each segment ``k``."""
        if which.start >= which.stop:
            return flat[:0].copy()
        own, begin, count = self.between(which)
        low = first[own] + begin
        parts = zip(low.tolist(), (low + count).tolist(), strict=True)
        return np.concatenate([flat[a:b] for a, b in parts])

    def each(self, values: npt.NDArray[Any], which: slice) -> npt.NDArray[Any]:
        """``values[k]`` for every column of each segment ``k``."""
        if which.start >= which.stop:
            return values[:0].copy()
        own, _, count = self.between(which)
        return np.repeat(values[own], count)

    def shapes_of(self, which: slice | Ints) -> npt.NDArray[np.int32]:
        """The shapes of some columns."""
        if isinstance(which, slice):
            columns = np.arange(which.start, which.stop)
            found = columns + self.each(self.item - self.start[:-1], which)
        else:
            own = self.find(which)
            found = which - self.start[own] + self.item[own]
        shapes: npt.NDArray[np.int32] = found.astype(np.int32)
        return shapes

    def throughput_of(self, which: slice | Ints) -> Floats:
        """Samples per second of some columns."""
        slow, own = self.slowness_of(which)
        found: Floats = own(self.per_gpu) * slow * own(self.size)
        return found

    def shares_of(self, which: slice | Ints) -> npt.NDArray[np.int32]:
        """The items of limits of some columns."""
        if self.share is None:
            raise ValueError("no limit binds any column")
        if isinstance(which, slice):
            shares: npt.NDArray[np.int32] = self.each(self.share, which)
        else:
            shares = self.share[self.find(which)]
        return shares

    def slowness_of(self, which: slice | Ints) -> tuple[Floats, Callable[[Floats], Floats]]:
        """The slowness of some columns, and what gives them their segment's value."""
        if isinstance(which, slice):
            part = which
            return self.gather(self.slowness, self.at, which), lambda v: self.each(v, part)
        own = self.find(which)
        return self.slowness[self.at[own] + which - self.start[own]], lambda v: v[own]

    def extremes(self) -> tuple[Floats, Floats, Floats]:
        """The smallest, the mean and the largest slowness of every segment."""
        least = self.slowness[self.at]
        mean, most = least.copy(), least.copy()
        for block in self.blocks:
            least[block.segments] = block.slowness[-1]
            mean[block.segments] = block.slowness.mean()
            most[block.segments] = block.slowness[0]
        return least, mean, most

    def revalued(self, worth: Callable[[Floats, Ints], Floats], power: float) -> Segments:
        """See :meth:`Configurations.revalued`."""
        blocks = [replace(block, slowness=block.slowness**power) for block in self.blocks]
        return replace(
            self,
            per_gpu=worth(self.per_gpu * self.size, self.job) ** power,
            size=np.ones(len(self)),
            slowness=self.slowness**power,
            blocks=tuple(blocks),
        )

    def of_job(self) -> Ints:
        """The first segment of every job that has any."""
        return np.flatnonzero(np.append(True, self.job[1:] != self.job[:-1])[: len(self.job)])

    def columns_of(self, own: Ints) -> Ints:
        """The columns of the segments ``own`` (sorted)."""
        count = self.start[own + 1] - self.start[own]
        return np.repeat(self.start[own], count) + ramp(count)

    def in_parts(self, own: Ints, most: int) -> Iterator[Ints]:
        """The segments ``own`` in parts of about ``most`` columns."""
        ends = np.cumsum(self.start[own + 1] - self.start[own])
        cuts = np.searchsorted(ends, np.arange(most, int(ends[-1]) if len(ends) else 0, most))
        yield from (part for part in np.split(own, np.unique(cuts)) if len(part))

    def with_items(self, able: Bools, items: Bools) -> Ints:
        """The columns of the segments ``able`` that take one of ``items``, sorted."""
        before = np.concatenate([[0], np.cumsum(items)])
        numbers, own = np.flatnonzero(items), np.flatnonzero(able)
        item, length = self.item[own], self.start[own + 1] - self.start[own]
        count = before[item + length] - before[item]
        place = numbers[np.repeat(before[item], count) + ramp(count)]
        return place + np.repeat(self.start[own] - item, count)

    def some(self, able: Bools) -> Segments:
        """Only the segments ``able``; their columns are numbered anew."""
        lengths = np.diff(self.start)[able]
        start = np.concatenate([[0], np.cumsum(lengths)])
        item, at = self.item[able], self.at[able]
        return Segments(
            start,
            self.job[able],
            item,
            self.per_gpu[able],
            at,
            self.size[able],
            self.slowness,
            _blocks(start, item, at, self.slowness),
            None if self.share is None else self.share[able],
        )


@dataclass(frozen=True, slots=True)
class Unwritten:
    """Stands in for an array over columns, each part of which is computed when it is read."""

    length: int
    of: Callable[[Any], npt.NDArray[Any]]

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, which: Any) -> Any:
        if isinstance(which, slice):
            first, last, _ = which.indices(self.length)
            return self.of(slice(first, max(first, last)))
        numbers = np.asarray(which)
        if not numbers.ndim:
            return self.of(numbers.reshape(1) % self.length)[0]
        # As with an array, -1 is the last.
        return self.of(numbers % self.length) if len(numbers) else self.of(slice(0, 0))

    def __array__(self, dtype: Any = None, copy: Any = None) -> npt.NDArray[Any]:
        return np.asarray(self[:], dtype=dtype)


def _blocks(start: Ints, item: Ints, at: Ints, slowness: Floats) -> tuple[Block, ...]:
    several = np.flatnonzero(np.diff(start) > 1)
    if not len(several):
        return ()
    order = several[np.lexsort((several, at[several], item[several]))]
    changes = (np.diff(item[order]) != 0) | (np.diff(at[order]) != 0)
    found = []
    for segments in np.split(order, np.flatnonzero(changes) + 1):
        first = int(segments[0])
        own = slowness[at[first] : at[first] + start[first + 1] - start[first]]
        fastest = np.argsort(-own, kind="stable")
        found.append(Block(segments, int(item[first]), fastest, own[fastest]))
    return tuple(found)
