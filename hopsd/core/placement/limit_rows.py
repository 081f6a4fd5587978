"""The rows of a program for limits: of accounts, QOS and partitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from hopsd.core.placement.configurations import Configurations
from hopsd.core.placement.demands import Demands
from hopsd.core.placement.remaining_limits import RemainingLimit
from hopsd.model.arrays import Ints
from hopsd.model.job import Job


def with_limits(
    columns: Configurations, jobs: Sequence[Job], remaining_limits: Sequence[RemainingLimit]
) -> Configurations:
    """Add a row for every bound that jobs could exceed, and what each column takes of it."""
    rows = _rows_that_bind(columns, jobs, remaining_limits)
    if not rows.capacity:
        return columns
    share, shares = _shares(columns, rows)
    limited_columns = replace(
        columns,
        demands=Demands.concatenate([columns.demands, shares]),
        capacity=np.concatenate([columns.capacity, np.array(rows.capacity, dtype=np.int64)]),
        server=np.concatenate([columns.server, np.full(len(rows.capacity), -1)]),
    )
    if columns.segments is not None:
        return limited_columns.with_segments(replace(columns.segments, share=share))
    return replace(limited_columns, share=share)


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows for limits.

    ``capacity``: by row. By job, ``gpu_rows``: its rows, with how much each GPU takes of them;
    ``count_rows``: its rows that count jobs.
    """

    capacity: list[int]
    gpu_rows: list[list[tuple[int, int]]]
    count_rows: list[list[int]]


def _rows_that_bind(
    columns: Configurations, jobs: Sequence[Job], remaining_limits: Sequence[RemainingLimit]
) -> _Rows:
    """Return a row for each remaining limit that its jobs together could exceed."""
    rows = _Rows([], [[] for _ in jobs], [[] for _ in jobs])
    first, largest = len(columns.capacity), _largest(columns) if remaining_limits else ()
    for remaining_limit in remaining_limits:
        members = [
            i for i, job in enumerate(jobs) if job.id in remaining_limit.limit.jobs and largest[i]
        ]
        amount_of = remaining_limit.limit.amount
        if remaining_limit.gpus is not None and remaining_limit.gpus < sum(
            amount_of(jobs[i].id, int(largest[i])) for i in members
        ):
            for i in members:
                rows.gpu_rows[i].append((first + len(rows.capacity), amount_of(jobs[i].id, 1)))
            rows.capacity.append(remaining_limit.gpus)
        if remaining_limit.count is not None and remaining_limit.count < len(members):
            for i in members:
                rows.count_rows[i].append(first + len(rows.capacity))
            rows.capacity.append(remaining_limit.count)
    return rows


def _shares(columns: Configurations, rows: _Rows) -> tuple[npt.NDArray[np.int32], Demands]:
    """Return the item of each column, or of each segment, and the items' demands on the rows.

    Items are numbered after the existing ones; the first takes nothing.
    """
    (start, sizes), first_item = _sizes(columns), len(columns.demands)
    share = np.full(len(sizes), first_item, dtype=np.int32)
    items: dict[object, int] = {None: first_item}
    entries: list[list[tuple[int, int]]] = [[(0, 0)]]
    for i, (first, end) in enumerate(pairwise(start.tolist())):
        if not rows.gpu_rows[i] and not rows.count_rows[i]:
            continue
        distinct, inverse = np.unique(sizes[first:end], return_inverse=True)
        numbers = []
        for size in distinct.tolist():
            entry = [(row, size * per_gpu) for row, per_gpu in rows.gpu_rows[i]]
            entry += [(row, 1) for row in rows.count_rows[i]]
            item = items.setdefault(tuple(entry), first_item + len(entries))
            if item == first_item + len(entries):
                entries.append(entry)
            numbers.append(item)
        share[first:end] = np.array(numbers, dtype=np.int32)[inverse.ravel()]
    flat = [entry for item in entries for entry in item]
    shares = Demands(
        np.concatenate([[0], np.cumsum([len(item) for item in entries])]).astype(np.int64),
        np.array([row for row, _ in flat], dtype=np.int64),
        np.array([amount for _, amount in flat], dtype=np.int64),
    )
    return share, shares


def _sizes(columns: Configurations) -> tuple[Ints, Ints]:
    """Return ``start`` and the GPUs of columns, or of segments, by job.

    Those of job ``i`` are ``start[i]:start[i + 1]``.
    """
    sizes, segments = columns.shapes.sizes(), columns.segments
    if segments is None:
        return columns.start, sizes[columns.shape]
    return np.searchsorted(segments.start, columns.start), sizes[segments.item]


def _largest(columns: Configurations) -> Ints:
    """Return the GPUs of each job's largest column, (jobs,); 0 for a job without columns."""
    largest = np.zeros(columns.jobs, dtype=np.int64)
    start, sizes = _sizes(columns)
    has_column = np.diff(start) > 0
    if has_column.any():
        largest[has_column] = np.maximum.reduceat(sizes, start[:-1][has_column])
    return largest
