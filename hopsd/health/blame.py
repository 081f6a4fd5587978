"""Find the node that made a job on several nodes slow: jobs run at their slowest node's speed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array, diags_array

from hopsd.health.measurements import Units
from hopsd.health.model import Rows
from hopsd.health.robust import Floats, Ints, distinct_counts, group, group_means

MIN_SLOWDOWN, MIN_DEVIATIONS = 0.015, 3.0
"""A job is slow from these on: a slowdown (logarithm), and standard deviations."""

MAX_RUN_DEVIATION = 0.01
"""Limits the deviation between runs, which seems larger until the slow nodes are known."""

GAIN = 16.0
"""A suspect must explain at least this much of the jobs' squared deviations, in variances."""

AMBIGUOUS = 9.0
"""Nodes whose gains differ by less cannot be told apart if naming one removes the other's gain."""

MAX_SUSPECTS = 0.2
"""The largest share of all nodes that may be suspects."""


def blame(
    units: Units, residuals: Floats, run_variance: Floats, slowness: Callable[[int, float], float]
) -> Rows:
    """Determine which nodes each unit measures.

    ``residuals`` (n,) are those of units from their cells' levels; ``slowness`` returns that of a
    node, by index, at a time, 0 if none is certain. A job with a slow node measures that node. A
    job at normal speed says in part of each of its nodes that it is normal. A job that is slow for
    no certain reason says nothing.
    """
    between_runs = np.minimum(run_variance, MAX_RUN_DEVIATION**2)
    deviation = np.sqrt(units.variance + between_runs[units.kind])
    slow = residuals > np.maximum(MIN_SLOWDOWN, MIN_DEVIATIONS * deviation)
    widths = units.widths
    # A job without any other run to compare with does not say that its nodes are normal.
    compared = distinct_counts(units.run, units.cell, units.cells)[units.cell] > 1
    alone = np.flatnonzero(widths == 1)
    first = np.array([nodes[0] for nodes in units.targets], np.int64)
    unit, node = list[int](), list[int]()
    for u in np.flatnonzero((widths > 1) & compared).tolist():
        nodes = units.targets[units.target[u]]
        losses = {n: slowness(n, float(units.time[u])) for n in nodes}
        if any(losses.values()):
            nodes = (max(nodes, key=lambda n: losses[n]),)
        elif slow[u]:
            continue
        unit += [u] * len(nodes)
        node += nodes
    rows = np.concatenate([alone, np.array(unit, np.int64)])
    order = np.argsort(rows, kind="stable")
    rows = rows[order]
    members = np.concatenate([first[units.target[alone]], np.array(node, np.int64)])[order]
    share = 1.0 / np.bincount(rows, minlength=len(units))[rows]
    return Rows(rows, members, share)


def find_suspects(
    units: Units, values: Floats, run_variance: Floats, nodes: int
) -> dict[int, float]:
    """Return the nodes that explain why jobs on them were slow, each with its slowness.

    By forward selection: first the node whose slowness explains most, then the next, given the
    first, and so on. A node that always ran with the same others explains no more than they do, and
    is not named.
    """
    jobs = _Jobs(units, values, run_variance, nodes)
    rest = jobs.unexplained()
    suspects: dict[int, float] = {}
    while len(suspects) < MAX_SUSPECTS * nodes:
        slowness, gain = jobs.gains(rest)
        best = int(np.argmax(gain))
        if gain[best] < GAIN:
            break
        explained = jobs.explain(rest, best)
        after = jobs.gains(explained)[1]
        rivals = (gain > gain[best] - AMBIGUOUS) & (after < AMBIGUOUS)
        rivals[best] = False
        if rivals.any():
            jobs.ignored |= {best, *np.flatnonzero(rivals).tolist()}
            continue
        suspects[best], rest = float(slowness[best]), explained
    return suspects


@dataclass(frozen=True, slots=True)
class _Rest:
    """What ``suspects`` leave unexplained: the ``value`` of each job (n,), and in ``norm`` (nodes,)
    how much the jobs still say about each node. ``basis`` (n, suspects) is orthonormal.
    """

    value: Floats
    norm: Floats
    basis: Floats
    suspects: tuple[int, ...]


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
        members = csr_array((np.ones(len(rows)), (rows, columns)), shape=(count, nodes))
        self.members: csr_array = members.tocsc()
        self.weighted: csr_array = (diags_array(self.weight) @ members).T.tocsr()
        self.ignored: set[int] = set()

    def unexplained(self) -> _Rest:
        cells, count = int(self.cell.max()) + 1, len(self.value)
        member = csr_array((np.ones(count), (self.cell, np.arange(count))), shape=(cells, count))
        in_cell = (member @ self.weighted.T).tocsr()
        total = np.bincount(self.cell, self.weight)
        shared = (in_cell.power(2).T @ (1.0 / total)).astype(np.float64)
        norm = self.weighted.sum(axis=1) - shared
        return _Rest(self.value, norm, np.zeros((count, 0)), ())

    def explain(self, rest: _Rest, node: int) -> _Rest:
        """Add ``node`` to the suspects, by Gram-Schmidt, done twice because of rounding."""
        root = np.sqrt(self.weight)
        column = self._within_cells(self.members[:, [node]].toarray()[:, 0]) * root
        for _ in range(2):
            column = column - rest.basis @ (rest.basis.T @ column)
        column = column / np.linalg.norm(column)
        value = rest.value - column * float(column @ (rest.value * root)) / root
        norm = rest.norm - (self.weighted @ (column / root)) ** 2
        return _Rest(value, norm, np.column_stack([rest.basis, column]), (*rest.suspects, node))

    def gains(self, rest: _Rest) -> tuple[Floats, Floats]:
        """Each node's slowness if it is the next suspect, and how much it explains (nodes,)."""
        product = self.weighted @ rest.value
        usable = rest.norm > 1e-6 * self.weight.min()
        slowness = np.where(usable, product / np.where(usable, rest.norm, 1.0), 0.0)
        gain = np.where(slowness > 0.0, slowness * product, 0.0)
        gain[[*rest.suspects, *self.ignored]] = 0.0
        return slowness, gain

    def _within_cells(self, values: Floats) -> Floats:
        count = int(self.cell.max()) + 1
        return values - group_means(values, self.weight, self.cell, count)[self.cell]
