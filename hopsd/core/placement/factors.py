"""Server speed factors as matrices, for many jobs at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hopsd.core.placement.rack_sets import leaf_numbers, leaves_of
from hopsd.core.speed.throughput import across_leaves
from hopsd.model.arrays import Floats, Ints
from hopsd.model.job import Job, Node, Shape


class Factors:
    """Server factors as a matrix (kinds of jobs, nodes), with one row for all jobs of a kind."""

    def __init__(self, jobs: Sequence[Job], nodes: Sequence[Node]) -> None:
        names = [node.name for node in nodes]
        rows: dict[int, int] = {}
        row_numbers: dict[tuple[float, ...], int] = {(1.0,) * len(names): 0}
        self._row = np.zeros(len(jobs), dtype=np.int64)
        for i, job in enumerate(jobs):
            if not job.server_factor:
                continue
            key = id(job.server_factor)
            if key not in rows:
                factor = job.server_factor.get
                factors = tuple(factor(name, 1.0) for name in names)
                rows[key] = row_numbers.setdefault(factors, len(row_numbers))
            self._row[i] = rows[key]
        self._matrix = np.array(list(row_numbers))
        self._at = {i: job.server_factor_at for i, job in enumerate(jobs) if job.server_factor_at}
        self._index = {name: i for i, name in enumerate(names)}
        self._leaf_tables = {
            i: (tuple(sorted(job.across.items())), job) for i, job in enumerate(jobs) if job.across
        }
        self.leaf = leaf_numbers(nodes)
        kinds: dict[object, int] = {}
        uniform = [
            (row, id(self._at.get(i)), self._leaf_tables[i][0] if i in self._leaf_tables else None)
            for i, row in enumerate(self._row.tolist())
        ]
        self._kind = np.array(
            [kinds.setdefault(key, len(kinds)) for key in uniform], dtype=np.int64
        )

    def slowest_on_shapes(self, jobs: Ints, servers: Ints, gpus: int) -> Floats:
        """Return the factor of each job and shape: (jobs, n) from ``servers`` (n, d).

        It is the smallest factor of the shape's servers times the factor for its number of leaves.
        ``gpus``: the size of the shapes. A server's factor for the shape has precedence over its
        mean.
        """
        factors = self.slowest(jobs, servers, (gpus, servers.shape[1]))
        if self._leaf_tables:
            factors *= self.across(jobs, leaves_of(self.leaf, servers))
        return factors

    def across(self, jobs: Ints, leaves: Ints) -> Floats:
        """Return the factor of each job for each number of ``leaves`` (n,): (jobs, n)."""
        leaf_factors = np.ones((len(jobs), len(leaves)))
        counts, inverse = np.unique(leaves, return_inverse=True)
        cache: dict[object, Floats] = {}
        for row, number in enumerate(jobs.tolist()) if self._leaf_tables else ():
            if number in self._leaf_tables:
                table, job = self._leaf_tables[number]
                if table not in cache:
                    factors = np.array([across_leaves(job, n) for n in counts.tolist()])
                    cache[table] = factors[inverse.ravel()]
                leaf_factors[row] = cache[table]
        return leaf_factors

    def slowest(self, jobs: Ints, servers: Ints, shape: Shape) -> Floats:
        """Return the smallest factor of each set of servers, for jobs with this ``shape``."""
        if len(self._matrix) == 1 and not self._at:
            return np.ones((len(jobs), len(servers)))
        rows = self._matrix[self._row[jobs]]
        for row, job in enumerate(jobs.tolist()) if self._at else ():
            for node, factor in self._at.get(job, {}).get(shape, {}).items():
                if node in self._index:
                    rows[row, self._index[node]] = factor
        slowest = rows[:, servers[:, 0]]
        for column in servers.T[1:]:
            np.minimum(slowest, rows[:, column], out=slowest)
        return slowest

    def kinds_of(self, jobs: Ints) -> int:
        """Return the number of kinds among some jobs; jobs of one kind have equal factors."""
        return len(np.unique(self._kind[jobs]))

    def by_kind(self, jobs: Ints, servers: Ints, gpus: int) -> tuple[Floats, Ints]:
        """Return :meth:`slowest_on_shapes` by kind of job, and the row of each job."""
        _, first, row = np.unique(self._kind[jobs], return_index=True, return_inverse=True)
        return self.slowest_on_shapes(jobs[first], servers, gpus), row.ravel()

    def mean(self) -> Floats:
        """Return the mean factor of each node over the jobs, (nodes,)."""
        shares = np.bincount(self._row, minlength=len(self._matrix)) / max(1, len(self._row))
        return shares @ self._matrix if len(self._row) else np.ones(self._matrix.shape[1])
