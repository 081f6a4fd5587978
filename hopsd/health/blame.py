"""Which node made a job on several nodes slow: it runs at the speed of its slowest node."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from scipy.sparse import csr_array, diags_array

from hopsd.health.measurements import Units
from hopsd.health.model import Rows
from hopsd.health.robust import Floats, Ints, group, group_means

MIN_SLOWDOWN, MIN_DEVIATIONS = 0.015, 3.0
"""What counts as a slow job: a logarithm, and standard deviations."""

MAX_RUN_DEVIATION = 0.01
"""Before slow nodes are known, runs seem to differ by what they cause."""

GAIN = 16.0
"""A suspect explains at least so much of the jobs' deviations: a sum of squares, in variances."""

AMBIGUOUS = 9.0
"""Two nodes whose gains differ by less cannot be told apart if one takes the other's away."""

MAX_SUSPECTS = 0.2
"""Share of all nodes."""


def blame(
    units: Units, residuals: Floats, run_variance: Floats, slowness: Callable[[int, float], float]
) -> Rows:
    """Which nodes each unit measures.

    ``residuals``: of units from their cells' levels (n,); ``slowness``: of a node, by index, at a
    time, 0 where none is certain. A job with a slow node measures that node. One at normal speed
    says of each of its nodes, in part, that it is normal. One that is slow for no certain reason
    says nothing.
    """
    between_runs = np.minimum(run_variance, MAX_RUN_DEVIATION**2)
    deviation = np.sqrt(units.variance + between_runs[units.kind])
    slow = residuals > np.maximum(MIN_SLOWDOWN, MIN_DEVIATIONS * deviation)
    unit: list[int] = []
    node: list[int] = []
    for u, target in enumerate(units.target.tolist()):
        nodes = units.targets[target]
        if len(nodes) > 1:
            losses = {n: slowness(n, float(units.time[u])) for n in nodes}
            if any(losses.values()):
                nodes = (max(nodes, key=lambda n: losses[n]),)
            elif slow[u]:
                continue
        unit += [u] * len(nodes)
        node += nodes
    rows = np.array(unit, np.int64)
    share = 1.0 / np.bincount(rows, minlength=len(units))[rows]
    return Rows(rows, np.array(node, np.int64), share)


def find_suspects(
    units: Units, values: Floats, run_variance: Floats, nodes: int
) -> dict[int, float]:
    """Nodes that explain why jobs on them were slow, each with its slowness.

    Forward selection: the node whose slowness explains most, then the next, given the first. A node
    that always ran beside the same others explains no more than they do, and is not named.
    """
    jobs = _Jobs(units, values, run_variance, nodes)
    suspects: dict[int, float] = {}
    while len(suspects) < MAX_SUSPECTS * nodes:
        slowness, gain = jobs.gains(suspects)
        best = int(np.argmax(gain))
        if gain[best] < GAIN:
            break
        after = jobs.gains({**suspects, best: 0.0})[1]
        rivals = (gain > gain[best] - AMBIGUOUS) & (after < AMBIGUOUS)
        rivals[best] = False
        if rivals.any():
            jobs.ignored_jobs |= {best, *np.flatnonzero(rivals).tolist()}
            continue
        suspects[best] = float(slowness[best])
    return suspects


class _Jobs:
    """Each run in each cell as one measurement of all its nodes."""

    def __init__(self, units: Units, values: Floats, run_variance: Floats, nodes: int) -> None:
        number = group(units.run, units.cell, units.target)
        count = int(number.max()) + 1
        weight = 1.0 / units.variance
        first = np.zeros(count, np.int64)
        first[number] = np.arange(len(units))
        variance = 1.0 / np.bincount(number, weight, count) + run_variance[units.kind[first]]
        self.weight: Floats = 1.0 / variance
        self.cell: Ints = group(units.cell[first])
        self.value = self._within_cells(group_means(values, weight, number, count))
        lists = [units.targets[t] for t in units.target[first].tolist()]
        rows = np.repeat(np.arange(count), [len(members) for members in lists])
        columns = np.array([n for members in lists for n in members], np.int64)
        self.members = csr_array((np.ones(len(rows)), (rows, columns)), shape=(count, nodes))
        self.ignored_jobs: set[int] = set()

    def gains(self, suspects: Mapping[int, float]) -> tuple[Floats, Floats]:
        """Every node's slowness if it is the next suspect, and what that explains (nodes,)."""
        picks = list(suspects)
        value, basis = self.value, np.zeros((len(self.value), 0))
        root = np.sqrt(self.weight)[:, None]
        if picks:
            columns = self.members[:, picks].toarray()
            centred_columns = np.column_stack([self._within_cells(column) for column in columns.T])
            basis, _ = np.linalg.qr(centred_columns * root)
            value = value - (basis @ (basis.T @ (value * root[:, 0]))) / root[:, 0]
        weighted_members = diags_array(self.weight) @ self.members
        product = weighted_members.T @ value
        by_cell = csr_array(
            (np.ones(len(value)), (self.cell, np.arange(len(value)))),
            shape=(int(self.cell.max()) + 1, len(value)),
        )
        in_cell = (by_cell @ weighted_members).toarray()
        total = np.bincount(self.cell, self.weight)
        norm = np.bincount(
            self.members.indices, self.weight[self.members.tocoo().coords[0]], len(product)
        ) - (in_cell**2 / total[:, None]).sum(axis=0)
        if picks:
            projection = (diags_array(root[:, 0]) @ self.members).T @ basis
            norm = norm - (projection**2).sum(axis=1)
        usable = norm > 1e-6 * self.weight.min()
        slowness = np.where(usable, product / np.where(usable, norm, 1.0), 0.0)
        gain = np.where(slowness > 0.0, slowness * product, 0.0)
        gain[[*picks, *self.ignored_jobs]] = 0.0
        return slowness, gain

    def _within_cells(self, values: Floats) -> Floats:
        count = int(self.cell.max()) + 1
        return values - group_means(values, self.weight, self.cell, count)[self.cell]
