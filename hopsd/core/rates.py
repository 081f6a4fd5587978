"""Throughput in bulk: tables and server factors read for many jobs at once."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

import numpy as np

from hopsd.core.shapes import Floats, Ints
from hopsd.model.cluster import Node
from hopsd.model.job import Job


class Rates:
    """Reads throughput tables many times: linear between two counts, the nearest outside."""

    def __init__(self) -> None:
        self._sorted: dict[int, tuple[list[int], list[float]]] = {}

    def __call__(self, table: Mapping[int, float], count: int) -> float:
        """Per-GPU throughput at ``count``; 0 from an empty table. Tables must outlive this."""
        exact = table.get(count)
        if exact is not None:
            return exact
        known = self._sorted.get(id(table))
        if known is None:
            counts = sorted(table)
            known = self._sorted[id(table)] = (counts, [table[c] for c in counts])
        counts, rates = known
        if not counts:
            return 0.0
        at = bisect_left(counts, count)
        if at in (0, len(counts)):
            return rates[min(at, len(counts) - 1)]
        share = (count - counts[at - 1]) / (counts[at] - counts[at - 1])
        return rates[at - 1] + share * (rates[at] - rates[at - 1])


class Factors:
    """Server factors as a matrix (jobs with any, nodes); equal mappings are read once."""

    def __init__(self, jobs: Sequence[Job], nodes: Sequence[Node]) -> None:
        names = [node.name for node in nodes]
        rows: dict[int, int] = {}
        matrix = [[1.0] * len(names)]
        self._row = np.zeros(len(jobs), dtype=np.int64)
        for i, job in enumerate(jobs):
            if not job.server_factor:
                continue
            key = id(job.server_factor)
            if key not in rows:
                rows[key] = len(matrix)
                factor = job.server_factor.get
                matrix.append([factor(name, 1.0) for name in names])
            self._row[i] = rows[key]
        self._matrix = np.array(matrix)

    def slowest(self, jobs: Ints, servers: Ints) -> Floats:
        """The smallest factor over each shape's servers: (jobs, n) from ``servers`` (n, d)."""
        if len(self._matrix) == 1:
            return np.ones((len(jobs), len(servers)))
        rows = self._matrix[self._row[jobs]]
        slowest = rows[:, servers[:, 0]]
        for column in servers.T[1:]:
            np.minimum(slowest, rows[:, column], out=slowest)
        return slowest
