"""Find nodes whose jobs are slower than elsewhere only because they slow each other down.

A slow node is slow whoever runs there. If several jobs run beside each other now, each is compared
with the time that its workload takes alone, on this node and on others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from scipy.special import stdtrit

from hopsd.health.measurements import ALONE, IN_COMPANY, Units
from hopsd.health.model import Fit
from hopsd.health.records import HealthNode, SharedNode
from hopsd.health.robust import Floats, Ints, group_means

MIN_LOSS = 0.01
"""The least loss (a logarithm) that is reported."""

CHANCE = 1e-3
"""Probability of reporting neighbours that cost nothing."""

PRESENT_SECONDS = 7200.0
"""A job that reported within this time still counts as present."""


def find_shared(
    nodes: Sequence[HealthNode],
    units: Units,
    values: Floats,
    fit: Fit,
    slowness: Floats,
    now: float,
) -> Iterator[SharedNode]:
    """Yield the nodes whose present jobs are slower than alone, by how much, and since when.

    ``values`` are those of units, without the common course; ``slowness`` (nodes,) is that of the
    nodes themselves.
    """
    kind, alone = units.kind, units.alone[units.cell]
    count = np.bincount(units.cell[kind == ALONE], minlength=units.cells)
    runs = np.bincount(fit.summaries.cell[fit.summaries.kind == ALONE], minlength=units.cells)
    for number, unit in _beside_now(units, len(nodes), now):
        comparable = unit[(units.widths[unit] == 1) & (alone[unit] >= 0)]
        comparable = comparable[count[alone[comparable]] > 0]
        if not len(comparable):
            continue
        cells, cell = np.unique(alone[comparable], return_inverse=True)
        weight = 1.0 / units.variance[comparable]
        losses = group_means(values[comparable], weight, cell, len(cells)) - fit.cells[cells]
        program = np.zeros(len(cells), np.int64)
        program[cell] = units.program[comparable] - units.kind[comparable] + ALONE
        run_variance = fit.run_variance[program] * (1.0 + 1.0 / runs[cells])
        precision = 1.0 / (run_variance + 1.0 / np.bincount(cell, weight))
        # Satterthwaite, as in the fit.
        error2 = ((precision**2 * run_variance) ** 2 / fit.freedom[program]).sum()
        least = float(stdtrit(precision.sum() ** 2 / error2, 1.0 - CHANCE))
        loss = float((precision * losses).sum() / precision.sum()) - float(slowness[number])
        if loss > max(MIN_LOSS, least / np.sqrt(precision.sum())):
            since = float(units.time[unit].min())
            yield SharedNode(nodes[number].name, float(np.exp(-loss)), since)


def _beside_now(units: Units, nodes: int, now: float) -> Iterator[tuple[int, Ints]]:
    """Yield each node, by index, whose jobs now run beside each other, and the units since then."""
    width = units.widths
    unit = np.repeat(np.arange(len(units)), width)
    node = np.array([n for t in units.target.tolist() for n in units.targets[t]], np.int64)
    in_company = units.kind[unit] == IN_COMPANY
    last_alone = np.full(nodes, -np.inf)
    np.maximum.at(last_alone, node[~in_company], units.time[unit[~in_company]])
    since = np.flatnonzero(in_company & (units.time[unit] > last_alone[node]))
    last = np.full(nodes, -np.inf)
    np.maximum.at(last, node[since], units.middle[unit[since]])
    since = since[last[node[since]] > now - PRESENT_SECONDS]
    order = since[np.argsort(node[since], kind="stable")]
    for rows in np.split(order, np.flatnonzero(np.diff(node[order])) + 1):
        if len(rows):
            yield int(node[rows[0]]), unit[rows]
