"""Shapes: the placements ``{server: gpus}`` a cluster offers, whoever takes them (section 3.6)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from hopsd.model.arrays import Bools, Ints


@dataclass(frozen=True, slots=True)
class Shapes:
    """Shape ``s`` takes ``gpus[k]`` of ``server[k]`` for ``k`` in ``start[s]:start[s + 1]``."""

    start: Ints
    server: Ints
    gpus: Ints

    def __len__(self) -> int:
        return len(self.start) - 1

    def parts(self, shape: int) -> list[tuple[int, int]]:
        """``(server, gpus)`` of one shape."""
        part = slice(self.start[shape], self.start[shape + 1])
        return list(zip(self.server[part].tolist(), self.gpus[part].tolist(), strict=True))

    def sizes(self) -> Ints:
        """GPUs of every shape."""
        return np.add.reduceat(self.gpus, self.start[:-1]) if len(self) else np.zeros(0, np.int64)

    def fit(self, capacity: Ints) -> Bools:
        """Which shapes ``capacity`` (servers,) can hold."""
        if not len(self):
            return np.zeros(0, dtype=np.bool_)
        return np.logical_and.reduceat(self.gpus <= capacity[self.server], self.start[:-1])

    def consumption(self, shapes: Ints, servers: int) -> Ints:
        """GPUs taken on every server when each of ``shapes`` is chosen once per mention."""
        taken = np.zeros(servers, dtype=np.int64)
        lengths = self.start[shapes + 1] - self.start[shapes]
        part = np.repeat(self.start[shapes], lengths) + ramp(lengths)
        np.add.at(taken, self.server[part], self.gpus[part])
        return taken


@dataclass(frozen=True, slots=True)
class ShapesOfSize:
    """``n`` shapes over ``d`` servers each: ``servers`` and ``gpus`` are (n, d)."""

    servers: Ints
    gpus: Ints

    def __len__(self) -> int:
        return len(self.servers)


def ramp(lengths: Ints) -> Ints:
    """``0..l-1`` for every ``l`` of ``lengths``, one after the other."""
    ends = np.cumsum(lengths)
    return np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - lengths, lengths)


def join(parts: Iterable[ShapesOfSize]) -> Shapes:
    """All shapes one after the other."""
    parts = list(parts)
    lengths = [np.full(len(p), p.servers.shape[1]) for p in parts]
    start = np.concatenate([[0], np.cumsum(np.concatenate([*lengths, np.zeros(0, np.int64)]))])
    empty = [np.zeros(0, np.int64)]
    server = np.concatenate([*(p.servers.ravel() for p in parts), *empty])
    gpus = np.concatenate([*(p.gpus.ravel() for p in parts), *empty])
    return Shapes(start.astype(np.int64), server.astype(np.int64), gpus.astype(np.int64))


def by_size(
    servers: Ints, idle: Ints, sizes: Sequence[int]
) -> Iterator[tuple[int, ShapesOfSize, ShapesOfSize]]:
    """For every size: its shapes in one server, and its spread shapes over the fewest servers.

    ``servers`` are those of one GPU type in the cluster's node order, ``idle`` their free GPUs.
    A spread shape is filled: every server but the last gives all it has.
    """
    taken_before = np.concatenate([[0], np.cumsum(idle)])
    run_end = _run_ends(idle)
    for size in sizes:
        one = servers[idle >= size]
        in_one = ShapesOfSize(one[:, None], np.full((len(one), 1), size))
        yield size, in_one, _spread(servers, idle, size, taken_before, run_end)


def _run_ends(idle: Ints) -> Ints:
    """Where the run of servers with something idle ends, for each server (exclusive)."""
    empty = np.flatnonzero(idle == 0)
    position = np.searchsorted(empty, np.arange(len(idle)))
    return np.append(empty, len(idle))[position]


def _spread(
    servers: Ints, idle: Ints, size: int, taken_before: Ints, run_end: Ints
) -> ShapesOfSize:
    start = np.flatnonzero((idle > 0) & (idle < size))
    last = np.searchsorted(taken_before, taken_before[start] + size) - 1
    fits = last < run_end[start]
    start, last = start[fits], last[fits]
    if not len(start):
        none = np.zeros((0, 2), dtype=np.int64)
        return ShapesOfSize(none, none)
    count = last - start + 1
    fewest = int(count.min())
    start, last = start[count == fewest], last[count == fewest]
    index = start[:, None] + np.arange(fewest)
    gpus = idle[index]
    gpus[:, -1] = size - (taken_before[last] - taken_before[start])
    return ShapesOfSize(servers[index], gpus)
