"""Column groups: columns with the same job, GPU type, size and number of servers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hopsd.core.placement.program import Program
from hopsd.model.arrays import Floats, Ints


@dataclass(frozen=True, slots=True)
class ColumnGroups:
    """Group ``g`` holds the columns ``first[g]:end[g]``; all arrays are (groups,).

    ``pool``: the GPU type's number. ``best`` and ``mean``: of the columns' values.
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
    """The column groups of a program, in column order."""
    columns = program.configurations
    shapes = columns.shapes
    servers, size = np.diff(shapes.start), shapes.sizes()
    pool = columns.pool[shapes.server[shapes.start[:-1]]]
    kind = np.unique(np.stack([pool, size, servers]), axis=1, return_inverse=True)[1].ravel()
    kinds = kind.astype(np.int32)[columns.shape]
    breaks = np.empty(len(kinds), dtype=np.bool_)
    np.not_equal(kinds[1:], kinds[:-1], out=breaks[1:])
    breaks[columns.start[:-1][np.diff(columns.start) > 0]] = True
    first = np.flatnonzero(breaks)
    end = np.append(first[1:], len(kinds))
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
