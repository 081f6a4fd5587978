"""Column groups: columns with the same job, GPU type, size and number of servers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hopsd.core.placement.program import Program, segment_values
from hopsd.model.arrays import NONE, Floats, Ints


@dataclass(frozen=True, slots=True)
class ColumnGroups:
    """Group ``g`` holds the columns ``first[g]:end[g]``; all arrays are (groups,).

    ``pool`` is the GPU type's number, ``best`` and ``mean`` are those of the columns' values.
    """

    first: Ints
    end: Ints
    job: Ints
    pool: Ints
    size: Ints
    servers: Ints
    best: Floats
    mean: Floats

    def __len__(self) -> int:
        return len(self.first)


def column_groups(program: Program) -> ColumnGroups:
    """Return the column groups of a program, in column order; one for each segment if columns are
    not written out.
    """
    columns = program.configurations
    shapes = columns.shapes
    servers, size = np.diff(shapes.start), shapes.sizes()
    pool = columns.pool[shapes.server[shapes.start[:-1]]]
    kind = np.unique(np.stack([pool, size, servers]), axis=1, return_inverse=True)[1].ravel()
    values = segment_values(program)
    if values is not None:
        segments = values.segments
        return ColumnGroups(
            segments.start[:-1],
            segments.start[1:],
            segments.job,
            pool[segments.item],
            size[segments.item],
            servers[segments.item],
            values.most(),
            values.mean(),
        )
    first = np.concatenate([NONE, *_first_columns(program, kind.astype(np.int32))])
    end = np.append(first[1:], len(columns))
    shape = columns.shape[first].astype(np.int64)
    return ColumnGroups(
        first,
        end,
        np.searchsorted(columns.start, first, side="right") - 1,
        pool[shape],
        size[shape],
        servers[shape],
        np.maximum.reduceat(program.value, first),
        np.add.reduceat(program.value, first) / (end - first),
    )


def _first_columns(program: Program, kind: npt.NDArray[np.int32]) -> Iterator[Ints]:
    """Yield, in parts, the columns at which a new job or, within one, a new ``kind`` begins."""
    columns = program.configurations
    heads = columns.start[:-1][np.diff(columns.start) > 0]
    for first, last in program.configurations.slices():
        kinds = kind[columns.shape[first:last]]
        breaks = np.ones(last - first, dtype=np.bool_)
        np.not_equal(kinds[1:], kinds[:-1], out=breaks[1:])
        low, high = np.searchsorted(heads, [first, last])
        breaks[heads[low:high] - first] = True
        yield first + np.flatnonzero(breaks)
