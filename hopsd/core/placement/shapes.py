"""Shapes: the placements ``{server: gpus}`` that a cluster offers to any job (section 3.6)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from hopsd.model.arrays import Ints


@dataclass(frozen=True, slots=True)
class Shapes:
    """Shape ``s`` takes ``gpus[k]`` of ``server[k]`` for ``k`` in ``start[s]:start[s + 1]``."""

    start: Ints
    server: Ints
    gpus: Ints

    def __len__(self) -> int:
        return len(self.start) - 1

    def parts(self, shape: int) -> list[tuple[int, int]]:
        """Return the ``(server, gpus)`` pairs of one shape."""
        part = slice(self.start[shape], self.start[shape + 1])
        return list(zip(self.server[part].tolist(), self.gpus[part].tolist(), strict=True))

    def sizes(self) -> Ints:
        """Return the number of GPUs of each shape."""
        return np.add.reduceat(self.gpus, self.start[:-1]) if len(self) else np.zeros(0, np.int64)

    def select(self, numbers: Ints) -> Shapes:
        """Return only the shapes with these ``numbers``, in this order."""
        lengths = self.start[numbers + 1] - self.start[numbers]
        entry = np.repeat(self.start[numbers], lengths) + ramp(lengths)
        start = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        return Shapes(start, self.server[entry], self.gpus[entry])


@dataclass(frozen=True, slots=True)
class ShapesOfSize:
    """``n`` shapes over ``d`` servers each, ordered by first server; both arrays are (n, d)."""

    servers: Ints
    gpus: Ints

    def __len__(self) -> int:
        return len(self.servers)


def ramp(lengths: Ints) -> Ints:
    """Return ``0..l-1`` for each ``l`` of ``lengths``, concatenated."""
    ends = np.cumsum(lengths)
    return np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - lengths, lengths)


def join(parts: Iterable[ShapesOfSize]) -> Shapes:
    """Concatenate all shapes."""
    parts = list(parts)
    lengths = [np.full(len(p), p.servers.shape[1]) for p in parts]
    start = np.concatenate([[0], np.cumsum(np.concatenate([*lengths, np.zeros(0, np.int64)]))])
    empty = [np.zeros(0, np.int64)]
    server = np.concatenate([*(p.servers.ravel() for p in parts), *empty])
    gpus = np.concatenate([*(p.gpus.ravel() for p in parts), *empty])
    return Shapes(start.astype(np.int64), server.astype(np.int64), gpus.astype(np.int64))


class Neighbours:
    """The servers of one GPU type that a job may use, in the cluster's node order.

    ``idle`` (servers,): S_t of section 3.6, the GPUs that the job could take on each. A server
    without any ends a run of neighbours. Servers that the job may never use are not included:
    otherwise a job on several nodes could wait for ever for nodes on both sides of such a server.
    """

    def __init__(self, servers: Ints, idle: Ints) -> None:
        self._servers, self._idle = servers, idle
        self._taken_before = np.concatenate([[0], np.cumsum(idle)])
        self._run_end = _run_ends(idle)

    def in_one(self, size: int) -> ShapesOfSize:
        """Return the shapes of ``size`` GPUs on one server, for each server that can hold them."""
        servers = self._servers[self._idle >= size]
        return ShapesOfSize(servers[:, None], np.full((len(servers), 1), size))

    def fill_servers(self, size: int) -> ShapesOfSize:
        """Return shapes over the fewest servers, of which all but the last give all idle GPUs."""
        idle, before = self._idle, self._taken_before
        start = np.flatnonzero((idle > 0) & (idle < size))
        last = np.searchsorted(before, before[start] + size) - 1
        fits = last < self._run_end[start]
        start, last = start[fits], last[fits]
        if not len(start):
            return NO_SHAPES
        count = last - start + 1
        fewest = int(count.min())
        start, last = start[count == fewest], last[count == fewest]
        index = start[:, None] + np.arange(fewest)
        gpus = idle[index]
        gpus[:, -1] = size - (before[last] - before[start])
        return ShapesOfSize(self._servers[index], gpus)

    def slid(self, size: int) -> ShapesOfSize:
        """Return the shapes of `fill_servers`, also with GPUs left over on the first server.

        Two jobs of 12 GPUs on three servers of 8 can only run together as 8+4 and 4+8. If the rest
        of the first server is in use, Slurm fills a job's nodes in exactly this way.
        """
        filled_shapes = self.fill_servers(size)
        count = filled_shapes.servers.shape[1]
        if not len(filled_shapes):
            return filled_shapes
        runs = sliding_window_view(self._idle, count)
        start = np.flatnonzero((runs.min(1) > 0) & (runs.max(1) < size) & (runs.sum(1) > size))
        runs = runs[start]
        ends = size - runs[:, 1:-1].sum(1)  # more than either end: no fewer servers suffice
        minimum = ends - runs[:, -1]
        several = runs[:, 0] - minimum  # all of the first is the filled shape
        first = np.repeat(minimum, several) + ramp(several)
        gpus = np.repeat(runs, several, axis=0)
        gpus[:, 0], gpus[:, -1] = first, np.repeat(ends, several) - first
        index = np.repeat(start, several)[:, None] + np.arange(count)
        servers = np.concatenate([filled_shapes.servers, self._servers[index]])
        order = np.argsort(servers[:, 0], kind="stable")
        return ShapesOfSize(servers[order], np.concatenate([filled_shapes.gpus, gpus])[order])

    def even(self, size: int, per_node: int | None) -> ShapesOfSize:
        """Return shapes over the fewest servers with equal counts, ``per_node`` each if given."""
        if per_node is None:
            max_servers = min(size, len(self._servers))
            counts = [count for count in range(2, max_servers + 1) if size % count == 0]
        else:
            counts = [size // per_node] if 2 * per_node <= size and size % per_node == 0 else []
        for count in counts:
            per_server = size // count
            enough = np.concatenate([[0], np.cumsum(self._idle >= per_server)])
            start = np.flatnonzero(enough[count:] - enough[:-count] == count)
            if len(start):
                index = start[:, None] + np.arange(count)
                return ShapesOfSize(self._servers[index], np.full(index.shape, per_server))
        return NO_SHAPES


NO_SHAPES = ShapesOfSize(np.zeros((0, 2), dtype=np.int64), np.zeros((0, 2), dtype=np.int64))


def _run_ends(idle: Ints) -> Ints:
    """Return where the run of servers with idle GPUs ends, for each server (exclusive)."""
    empty = np.flatnonzero(idle == 0)
    position = np.searchsorted(empty, np.arange(len(idle)))
    return np.append(empty, len(idle))[position]
