"""Nodes on which jobs are slower than elsewhere, but no more than those beside them make them.

A slow node is slow whoever runs there. Where several jobs run beside each other now, each is
compared with what its workload takes alone, on this node and on others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from scipy.special import stdtrit

from hopsd.health.measurements import ALONE, SHARED, Units
from hopsd.health.model import Fit
from hopsd.health.records import HealthNode, SharedNode
from hopsd.health.robust import Floats, group_means

MIN_LOSS = 0.01
"""Neighbours that cost less are not mentioned."""

CHANCE = 1e-3
"""Probability with which neighbours that cost nothing are."""

PRESENT_SECONDS = 7200.0
"""Who has reported since is still there."""


def find_shared(
    nodes: Sequence[HealthNode],
    units: Units,
    values: Floats,
    fit: Fit,
    slowness: Floats,
    now: float,
) -> Iterator[SharedNode]:
    """The nodes whose jobs now are slower than alone, each with by how much, and since when.

    ``values``: of units, without the common course; ``slowness``: of each node itself (nodes,).
    """
    kind, alone = units.kind, units.alone[units.cell]
    count = np.bincount(units.cell[kind == ALONE], minlength=units.cells)
    runs = np.bincount(fit.summaries.cell[fit.summaries.kind == ALONE], minlength=units.cells)
    least = float(stdtrit(fit.freedom[ALONE], 1.0 - CHANCE))
    width, first = units.widths, np.array([members[0] for members in units.targets] or [0])
    for number, node in enumerate(nodes):
        here = np.isin(units.target, [t for t, each in enumerate(units.targets) if number in each])
        without = units.time[here & (kind != SHARED)].max(initial=-np.inf)
        together = here & (kind == SHARED) & (units.time > without)
        if not together.any() or units.middle[together].max() < now - PRESENT_SECONDS:
            continue
        comparable = together & (width == 1) & (first[units.target] == number) & (alone >= 0)
        comparable &= count[alone] > 0
        if not comparable.any():
            continue
        cells, cell = np.unique(alone[comparable], return_inverse=True)
        weight = 1.0 / units.variance[comparable]
        losses = group_means(values[comparable], weight, cell, len(cells)) - fit.cells[cells]
        between = fit.run_variance[ALONE] * (1.0 + 1.0 / runs[cells])
        precision = 1.0 / (between + 1.0 / np.bincount(cell, weight))
        loss = float((precision * losses).sum() / precision.sum()) - float(slowness[number])
        if loss > max(MIN_LOSS, least / np.sqrt(precision.sum())):
            yield SharedNode(node.name, float(np.exp(-loss)), float(units.time[together].min()))
