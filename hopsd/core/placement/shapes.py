"""Shapes: the placements ``{server: gpus}`` that a cluster offers, independent of the job (section
3.6).
"""

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
        """``(server, gpus)`` pairs of one shape."""
        part = slice(self.start[shape], self.start[shape + 1])
        return list(zip(self.server[part].tolist(), self.gpus[part].tolist(), strict=True))

    def sizes(self) -> Ints:
        """The number of GPUs of every shape."""
        return np.add.reduceat(self.gpus, self.start[:-1]) if len(self) else np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class ShapesOfSize:
    """``n`` shapes over ``d`` servers each, by first server. ``servers``, ``gpus``: (n, d)."""

    servers: Ints
    gpus: Ints

    def __len__(self) -> int:
        return len(self.servers)


def ramp(lengths: Ints) -> Ints:
    """``0..l-1`` for every ``l`` of ``lengths``, concatenated."""
    ends = np.cumsum(lengths)
    return np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - lengths, lengths)


def join(parts: Iterable[ShapesOfSize]) -> Shapes:
    """All shapes, concatenated."""
    parts = list(parts)
    lengths = [np.full(len(p), p.servers.shape[1]) for p in parts]
    start = np.concatenate([[0], np.cumsum(np.concatenate([*lengths, np.zeros(0, np.int64)]))])
    empty = [np.zeros(0, np.int64)]
    server = np.concatenate([*(p.servers.ravel() for p in parts), *empty])
    gpus = np.concatenate([*(p.gpus.ravel() for p in parts), *empty])
    return Shapes(start.astype(np.int64), server.astype(np.int64), gpus.astype(np.int64))


class Neighbours:
    """The servers of one GPU type that a job may use, in the cluster's node order, and what it
    could take of each.

    ``idle`` (servers,): S_t of section 3.6. A server without any for the job ends a run of
    neighbours. One that it may never use is not among them: otherwise a job on several nodes
    could wait for ever for nodes on both sides of it.
    """

    def __init__(self, servers: Ints, idle: Ints) -> None:
        self._servers, self._idle = servers, idle
        self._taken_before = np.concatenate([[0], np.cumsum(idle)])
        self._run_end = _run_ends(idle)

    def in_one(self, size: int) -> ShapesOfSize:
        """Shapes of ``size`` GPUs on one server, for every server that can hold them."""
        servers = self._servers[self._idle >= size]
        return ShapesOfSize(servers[:, None], np.full((len(servers), 1), size))

    def fill_servers(self, size: int) -> ShapesOfSize:
        """Shapes spread over the fewest servers, each but the last giving all its idle GPUs."""
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
        """`fill_servers`, and the same servers with GPUs left over on the first, too.

        Two jobs of 12 GPUs on three servers of 8 can only run together as 8+4 and 4+8. Where
        the rest of the first server is used, Slurm fills a job's nodes exactly so.
        """
        filled_shapes = self.fill_servers(size)
        count = filled_shapes.servers.shape[1]
        if not len(filled_shapes):
            return filled_shapes
        runs = sliding_window_view(self._idle, count)
        start = np.flatnonzero((runs.min(1) > 0) & (runs.max(1) < size) & (runs.sum(1) > size))
        runs = runs[start]
        ends = size - runs[:, 1:-1].sum(1)  # more than either end has: no fewer servers hold it
        minimum = ends - runs[:, -1]
        several = runs[:, 0] - minimum  # all of the first: filled
        first = np.repeat(minimum, several) + ramp(several)
        gpus = np.repeat(runs, several, axis=0)
        gpus[:, 0], gpus[:, -1] = first, np.repeat(ends, several) - first
        index = np.repeat(start, several)[:, None] + np.arange(count)
        servers = np.concatenate([filled_shapes.servers, self._servers[index]])
        order = np.argsort(servers[:, 0], kind="stable")
        return ShapesOfSize(servers[order], np.concatenate([filled_shapes.gpus, gpus])[order])

    def even(self, size: int, per_node: int | None) -> ShapesOfSize:
        """Shapes over the fewest servers with equal counts, ``per_node`` each if given."""
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
    """Where the run of servers with something idle ends, for each server (exclusive)."""
    empty = np.flatnonzero(idle == 0)
    position = np.searchsorted(empty, np.arange(len(idle)))
    return np.append(empty, len(idle))[position]
