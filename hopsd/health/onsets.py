"""Find when a node became slow between runs: from some run on, all are slower than usual.

A step is tested at the beginning of every run by generalized least squares. A node's runs are
compared with the times of their cells on other nodes, whose levels are the more uncertain the fewer
runs there are. The node's own past counts as much as the spread of healthy nodes allows.
"""

from __future__ import annotations

import numpy as np

from hopsd.health.measurements import ALONE, Units
from hopsd.health.model import Rows
from hopsd.health.robust import Floats, Ints, group, group_means

MIN_DEVIATIONS = 3.0
"""An onset must be clearer than this many standard errors. The verdict asks for more."""

MIN_GAIN = 2.0**2
"""How much likelier an onset must be than that the node always was slow: twice the log ratio. Such
nodes are slow in any case, so little depends on it."""

MIN_CHANGE = 0.01
"""Smaller changes (logarithms) are ignored, and stay part of the mean."""

MAX_RUNS = 400
"""How many newest runs on a node count: time and memory take the square of their number."""

UNKNOWN = 1.0
"""Variance of the level of a cell without measurements on other nodes."""


def onsets(
    units: Units,
    rows: Rows,
    values: Floats,
    slowness: Floats,
    run_variance: Floats,
    spread: float,
    nodes: int,
) -> dict[int, float]:
    """Return, by node, the time of the first record of the run from which on the node is slow.

    ``values`` are those of units, without the common course; ``slowness`` is that of each row's
    epoch; ``run_variance`` is by kind; ``spread`` is the variance of healthy nodes.
    """
    run, cell = units.run[rows.unit], units.cell[rows.unit]
    number = group(run, cell, rows.node)
    count = int(number.max(initial=-1)) + 1
    first = np.zeros(count, np.int64)
    first[number] = np.arange(len(number))
    weight = rows.share / units.variance[rows.unit]
    value = group_means(values[rows.unit], weight, number, count)
    usual = value - group_means(slowness, weight, number, count)
    time = np.full(count, np.inf)
    np.minimum.at(time, number, units.time[rows.unit])
    node, cell, kind = rows.node[first], cell[first], units.kind[rows.unit[first]]
    # Hours of a run's ranks, and neighbours, deviate together though they are in different cells.
    run_of_node = group(run[first], node)
    repeats = np.where(kind == ALONE, 1.0, np.bincount(run_of_node, minlength=1)[run_of_node])
    variance = (
        1.0 / np.bincount(number, weight, count) + run_variance[kind] * repeats / rows.share[first]
    )
    level, uncertain = _elsewhere(usual, 1.0 / (variance + spread), node, cell)
    order = np.lexsort((time, node))
    bounds = np.searchsorted(node[order], np.arange(nodes + 1))
    begins = {}
    for number_of_node in range(nodes):
        runs = order[bounds[number_of_node] : bounds[number_of_node + 1]][-MAX_RUNS:]
        place = slower_from(
            (value - level)[runs], variance[runs], cell[runs], uncertain[runs], spread
        )
        if place:
            begins[number_of_node] = float(time[runs[place]])
    return begins


def slower_from(
    deviations: Floats, variances: Floats, cells: Ints, levels: Floats, spread: float
) -> int:
    """Return the run from which on a node is slower than usual; 0 if there is no such run.

    ``deviations`` (n,) are those of the node's runs, in time order, from their ``cells``' levels,
    with ``variances`` (n,); ``levels`` (n,) are the variances of the cells' levels, ``spread`` is
    that of healthy nodes.
    """
    if len(deviations) < 2:
        return 0
    same_cell = np.where(cells[:, None] == cells, levels[:, None], 0.0)
    inverse = np.linalg.inv(np.diag(variances) + same_cell + spread)
    # For a step at each run: sums from that run to the last.
    sums = np.cumsum((inverse @ deviations)[::-1])[::-1]
    norms = np.diag(np.cumsum(np.cumsum(inverse[::-1, ::-1], axis=0), axis=1))[::-1]
    clear = sums / np.sqrt(np.maximum(norms, 1e-12))
    best = int(np.argmax(clear))
    if clear[best] < MIN_DEVIATIONS or sums[best] < MIN_CHANGE * norms[best]:
        return 0
    return best if clear[best] ** 2 - max(clear[0], 0.0) ** 2 > MIN_GAIN else 0


def _elsewhere(values: Floats, weights: Floats, nodes: Ints, cells: Ints) -> tuple[Floats, Floats]:
    """Return the level of each value's cell on other nodes, and its variance (n,)."""
    cell_of_node = group(nodes, cells)
    counts = int(cell_of_node.max(initial=-1)) + 1, int(cells.max(initial=-1)) + 1

    def sum_elsewhere(amounts: Floats) -> Floats:
        everywhere = np.bincount(cells, amounts, counts[1])[cells]
        return (everywhere - np.bincount(cell_of_node, amounts, counts[0])[cell_of_node]).astype(
            np.float64
        )

    weight = sum_elsewhere(weights)
    has_weight = weight > 1.0 / UNKNOWN
    level = np.where(
        has_weight, sum_elsewhere(weights * values) / np.where(has_weight, weight, 1.0), 0.0
    )
    cell_means = group_means(values, weights, cells, counts[1])[cells]
    return np.where(has_weight, level, cell_means), np.where(
        has_weight, 1.0 / np.where(has_weight, weight, 1.0), UNKNOWN
    )
