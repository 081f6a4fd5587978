"""How much, and how often, runs change their speed by themselves.

A program that alternates between two speeds, or whose speed wanders for hours, gives a thousand
reports that say less than a thousand independent ones, and it changes in the middle of a run as a
run on a node does that becomes slow. Both show in what successive windows of a run differ by, at
every length of window. Where such changes are seen on several nodes, one more is no sign of a
slow node.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hopsd.health.measurements import PAIR_FREEDOM, RANKS, Units, differences, variance_ratios
from hopsd.health.robust import (
    FIRM_CLIP,
    Floats,
    Ints,
    extra_variance,
    extra_variances,
    group,
    group_means,
)

WINDOWS = tuple(600.0 * 2.0**power for power in range(8))
"""Seconds, up to a day: within a factor of √2 of one, whatever the rhythm is."""

FAR_BLOCKS, FAR_SECONDS = 4, 1800.0
"""Blocks of a run so far apart have forgotten each other, and not yet met another hour."""

MIN_PAIRS = 8
"""So many pairs of windows, or more, tell how much those of their cell vary."""

MIN_WANDER = 0.003
"""A standard deviation: less is what hours' common course leaves, and changes no verdict."""

CERTAIN = 3.0
"""Standard deviations by which the logarithm of a variance exceeds what chance makes of one."""

CLEAR = 4.0
"""Standard errors by which a run changes for certain."""

USUAL, MIN_NODES = 0.002, 2
"""A change in the middle of a run is usual if more than this part of runs change as much, on so
many nodes or more."""

AS_LARGE = 0.8
"""Changes of at least this share are as large."""

MIN_RUNS = 5
"""Programs do so in each run or in none: so many runs of a workload speak for it alone."""

SAME_SECONDS = 1800.0
"""What changes on other nodes within such a time has one cause with them, and is no habit."""


@dataclass(frozen=True, slots=True)
class Swings:
    """``factor``: by how much a unit's variance is larger where its run has fewer independent
    reports than it has (n,). ``error``: the least standard error of a run's changes; ``cell``,
    ``kind`` and ``node``: of each run on a node in a cell (runs,). ``size``, ``time``: of changes
    that are certain, a logarithm and epoch seconds, in the middle of a ``run`` (changes,).
    """

    factor: Floats
    error: Floats
    cell: Ints
    kind: Ints
    node: Ints
    size: Floats
    time: Floats
    run: Ints

    def usual(self, cell: int, kind: int, node: int, size: float, time: float) -> bool:
        """Whether runs of the cell, or of all where it has few, change by ``size`` without any
        fault of a ``node``: on other nodes, at other times than ``time``.
        """
        other = (self.kind == kind) & (self.node != node)
        seen = (np.abs(self.size) >= AS_LARGE * size) & (np.abs(self.time - time) > SAME_SECONDS)
        changed = np.zeros(len(self.cell), bool)
        changed[self.run[seen]] = True
        changed &= other
        able = other & (changed | (self.error * CLEAR < size))
        of_cell = able & (self.cell == cell)
        runs = of_cell if of_cell.sum() >= MIN_RUNS else able
        nodes = len(np.unique(self.node[changed & runs]))
        return bool(nodes >= MIN_NODES and (changed & runs).sum() > USUAL * runs.sum())


def find_swings(units: Units, values: Floats, factor: Floats) -> Swings:
    """``values``: of units (n,), without what nodes have in common; ``factor``: by how much their
    variances are larger in any case, as by :func:`lasting`.
    """
    series = group(units.run, units.cell, units.target)
    count = int(series.max(initial=-1)) + 1
    head = np.zeros(count, np.int64)
    head[series] = np.arange(len(series))
    # An hour of a run's ranks is a cell: all of these are one.
    cells = np.where(units.kind == RANKS, units.cells, units.cell)
    larger = np.ones(units.cells + 1)
    error = np.full(count, np.inf)
    clear_changes: list[tuple[Floats, Floats, Ints]] = []
    for window in WINDOWS:
        pair, change, variance, noise, time = _changes(units, values, series, window)
        of_cell = cells[head[pair]]
        if len(change) < MIN_PAIRS:
            continue
        larger_variance = variance + 2.0 * MIN_WANDER**2
        excess = _excess(change / np.sqrt(larger_variance), of_cell, units.cells + 1)
        ratio = group_means(
            larger_variance / variance, np.ones(len(pair)), of_cell, units.cells + 1
        )
        larger = np.maximum(larger, 1.0 + excess * ratio)
        # That a program often changes makes no change of it less of one.
        deviation = np.sqrt(noise + 2.0 * MIN_WANDER**2)
        np.minimum.at(error, pair, deviation)
        clear = np.abs(change) > CLEAR * deviation
        clear_changes.append((change[clear], time[clear], pair[clear]))
    first_node = np.array([nodes[0] for nodes in units.targets], np.int64)[units.target[head]]
    size, when, run = (
        np.concatenate([part[i] for part in clear_changes] or [np.zeros(0)]) for i in range(3)
    )
    return Swings(
        factor=np.maximum(factor, larger[cells]),
        error=error,
        cell=units.cell[head],
        kind=units.kind[head],
        node=first_node,
        size=size,
        time=when,
        run=run.astype(np.int64),
    )


def lasting(units: Units) -> Floats:
    """By how much variances are larger (n,) for how long a run deviates the same way.

    If blocks further apart differ more, neighbours are alike, and a mean of many is less certain
    than theirs: as of an autoregressive process of order one, whose autocorrelation that shows.
    """
    deviations, program = differences(units, FAR_BLOCKS, FAR_SECONDS)
    count = int(units.program.max(initial=-1)) + 1
    # Of two variances, both estimated of such pairs.
    ratio, _ = variance_ratios(deviations, program, count, PAIR_FREEDOM / 2.0)
    chance = 2.0 * np.sqrt(4.0 / max(len(deviations), 1))
    ratio = np.maximum(1.0, ratio * np.exp(-chance))
    larger: Floats = ratio * (2.0 * ratio - 1.0)
    return larger[units.program]


def _excess(deviations: Floats, cells: Ints, count: int) -> Floats:
    """By how many times their variance the ``deviations`` of each cell vary too much for certain
    (count,); of one with few of them, those of all.
    """
    counts = np.bincount(cells, minlength=count).astype(np.float64)
    zeros = np.zeros(len(deviations))
    by_cell = extra_variances(deviations, zeros, cells, counts, FIRM_CLIP)
    every = extra_variance(deviations, zeros, float(len(deviations)), FIRM_CLIP)
    has_pairs = counts >= MIN_PAIRS
    pairs = np.where(has_pairs, counts, float(len(deviations)))
    # Pairs that follow each other share a window, and a firm clip needs twice as many.
    chance = np.exp(-CERTAIN * np.sqrt(2.0 / (pairs / 4.0)))
    excess: Floats = np.maximum(np.where(has_pairs, by_cell, every) * chance - 1.0, 0.0)
    return excess


def _changes(
    units: Units, values: Floats, series: Ints, width: float
) -> tuple[Ints, Floats, Floats, Floats, Floats]:
    """What windows of each of ``series`` differ by from those before them: the series, the
    difference, its variance, the part of that which is noise, and when the later one begins;
    columns.
    """
    window = np.floor(units.middle / width)
    number = group(window, series)
    count = int(number.max(initial=-1)) + 1
    weight = 1.0 / units.variance
    mean = group_means(values, weight, number, count)
    variance = 1.0 / np.bincount(number, weight, count)
    time, series_of = np.zeros(count), np.zeros(count, np.int64)
    time[number], series_of[number] = window, series
    next_to = np.flatnonzero((series_of[1:] == series_of[:-1]) & (time[1:] == time[:-1] + 1))
    change: Floats = mean[next_to + 1] - mean[next_to]
    noise = np.bincount(number, weight**2 * (units.variance - units.wander), count) * variance**2
    begin: Floats = width * time[next_to + 1]
    variance, noise = variance[next_to] + variance[next_to + 1], noise[next_to] + noise[next_to + 1]
    return series_of[next_to], change, variance, noise, begin
