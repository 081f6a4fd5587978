"""Configurations: every placement open to a job (section 3.6 of the paper).

A placement ``{server: gpus}`` is a *shape*; many jobs can take the same one. A *column* is one
job with one shape. Columns live in flat arrays, sorted by job, so that a million of them cost
megabytes and milliseconds.

What a column takes is counted in *rows*: the GPUs of every server, the cores and the memory of
servers that could run short of them, and the limits that could bind. A job that needs a server for
itself takes all its GPUs. ``generate.py`` makes them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from hopsd.core.placement.demands import Demands
from hopsd.core.placement.shapes import Shapes
from hopsd.model.arrays import Floats, Ints


@dataclass(frozen=True, slots=True)
class Configurations:
    """All columns; those of job ``i`` are ``start[i]:start[i + 1]``; ``shape`` indexes ``shapes``.

    ``throughput``: samples per second of the whole job. ``present[i]``: the column that is
    where the job runs now, -1 for none. ``pool`` (servers,): the GPU type of each as a number;
    ``speed`` (servers,): its server factor, mean over the jobs.

    ``capacity`` (rows,): how much there is of each row, the GPUs of every server first.
    ``server`` (rows,): the server of each row, -1 for a limit. A column takes what the item
    ``shape`` of ``demands`` takes and, if limits could bind any job, the item ``share``.
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

    def some(self, keep: Ints) -> Configurations:
        """Only the columns ``keep``, sorted; jobs keep their numbers."""
        stays = (self.present >= 0) & np.isin(self.present, keep)
        return replace(
            self,
            start=np.searchsorted(keep, self.start),
            shape=self.shape[keep],
            share=None if self.share is None else self.share[keep],
            throughput=self.throughput[keep],
            present=np.where(stays, np.searchsorted(keep, self.present), -1),
        )
