"""Estimate how much, and how often, runs change their speed by themselves.

If a program alternates between two speeds, or its speed wanders for hours, a thousand reports say
less than a thousand independent ones, and its runs change midway just like runs on a node that
becomes slow. Both show in the differences between successive windows of a run, at every length of
window. If such changes are seen on several nodes, one more is no sign of a slow node.
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
"""Lengths of windows in seconds, up to a day: one is within a factor of √2 of any rhythm."""

FAR_BLOCKS, FAR_SECONDS = 4, 1800.0
"""Blocks of a run this far apart are independent, and mostly still in the same hour."""

MIN_PAIRS = 8
"""A cell with at least this many pairs of windows shows how much its windows vary."""

MIN_WANDER = 0.003
"""A smaller standard deviation is what the hours' common course leaves, and changes no verdict."""

CERTAIN = 3.0
"""Standard deviations by which the logarithm of a variance must exceed what is due to chance."""

CLEAR = 4.0
"""Standard errors beyond which a change of a run is certain."""

USUAL, MIN_NODES = 0.002, 2
"""A change in the middle of a run is usual if more than this share of such runs change as much by
themselves, and if runs did on at least this many nodes: a single one may be slow itself."""

AS_LARGE = 0.8
"""A change of at least this share of another counts as equally large."""

SAME_SECONDS = 1800.0
"""Changes on other nodes within this time have the same cause, and are no habit."""


@dataclass(frozen=True, slots=True)
class Swings:
    """Changes of runs by themselves.

    ``factor`` (n,) is how many times larger a unit's variance is because its run's reports are not
    independent. ``error``, the least standard error of a run's changes, ``program``, ``kind`` and
    ``node`` describe each run on a node in a cell (runs,). ``size`` (a logarithm) and ``time``
    (epoch seconds) are those of certain changes in the middle of ``run``, which lie at most
    ``margin`` seconds from that time (changes,).
    """

    factor: Floats
    error: Floats
    program: Ints
    kind: Ints
    node: Ints
    size: Floats
    time: Floats
    margin: Floats
    run: Ints

    def usual(self, program: int, kind: int, node: int, size: float, time: float) -> bool:
        """Whether runs of the program change by ``size`` through no fault of ``node``: on other
        nodes, at other times than ``time``.

        Programs swing or do not. If this one has not been seen to, the number of those that do and
        how often their runs change tell what its steady runs are worth (empirical Bayes).
        """
        other = (self.kind == kind) & (self.node != node)
        apart = np.abs(self.time - time) > np.maximum(self.margin, SAME_SECONDS)
        seen = (np.abs(self.size) >= AS_LARGE * size) & apart
        changed = np.zeros(len(self.program), bool)
        changed[self.run[seen]] = True
        changed &= other
        if len(np.unique(self.node[changed])) < MIN_NODES:
            return False
        count = max(int(self.program.max()), program) + 1
        steady = other & ~changed & (self.error * CLEAR < size)
        steady_runs = np.bincount(self.program[steady], minlength=count)
        changed_runs = np.bincount(self.program[changed], minlength=count)
        own = changed & (self.program == program)
        if len(np.unique(self.node[own])) >= MIN_NODES:
            runs = changed_runs[program] + steady_runs[program]
            return bool(changed_runs[program] > USUAL * runs)
        swings = changed_runs > 0
        share = swings.sum() / ((changed_runs + steady_runs > 0).sum() + 1.0)
        # By the rule of succession, without the first change of each program, by which it is known.
        repeats = changed_runs.sum() - swings.sum()
        often = (repeats + 1.0) / (repeats + steady_runs[swings].sum() + 2.0)
        odds = share / (1.0 - share) * (1.0 - often) ** float(steady_runs[program])
        return bool(often * odds / (1.0 + odds) > USUAL)


def find_swings(units: Units, values: Floats, factor: Floats) -> Swings:
    """Find how much runs change by themselves. ``values`` (n,) are those of units, without what
    nodes have in common; ``factor`` is how many times larger their variances are in any case, for
    instance by :func:`lasting`.
    """
    series = group(units.run, units.cell, units.target)
    count = int(series.max(initial=-1)) + 1
    head = np.zeros(count, np.int64)
    head[series] = np.arange(len(series))
    # For ranks every hour of a run is a cell; here all of these count as one.
    cells = np.where(units.kind == RANKS, units.cells, units.cell)
    larger = np.ones(units.cells + 1)
    error = np.full(count, np.inf)
    clear_changes: list[tuple[Floats, Floats, Floats, Ints]] = []
    for window in WINDOWS:
        pair, change, variance, noise, time = _changes(units, values, series, window)
        pair_cells = cells[head[pair]]
        if len(change) < MIN_PAIRS:
            continue
        larger_variance = variance + 2.0 * MIN_WANDER**2
        excess = _excess(change / np.sqrt(larger_variance), pair_cells, units.cells + 1)
        ratio = group_means(
            larger_variance / variance, np.ones(len(pair)), pair_cells, units.cells + 1
        )
        larger = np.maximum(larger, 1.0 + excess * ratio)
        # A program's own changes do not count as noise, or they would hide each other.
        deviation = np.sqrt(noise + 2.0 * MIN_WANDER**2)
        np.minimum.at(error, pair, deviation)
        clear = np.abs(change) > CLEAR * deviation
        margin = np.full(int(clear.sum()), window)
        clear_changes.append((change[clear], time[clear], margin, pair[clear]))
    first_node = np.array([nodes[0] for nodes in units.targets], np.int64)[units.target[head]]
    size, when, margins, run = (
        np.concatenate([part[i] for part in clear_changes] or [np.zeros(0)]) for i in range(4)
    )
    return Swings(
        factor=np.maximum(factor, larger[cells]),
        error=error,
        program=units.program[head],
        kind=units.kind[head],
        node=first_node,
        size=size,
        time=when,
        margin=margins,
        run=run.astype(np.int64),
    )


def lasting(units: Units) -> Floats:
    """Return how many times larger variances are (n,) because deviations of a run last.

    If blocks further apart differ more, neighbouring ones are alike, and a mean of many is less
    certain than if they were independent: they are taken for an autoregressive process of order
    one, whose autocorrelation follows from the two differences.
    """
    deviations, program = differences(units, FAR_BLOCKS, FAR_SECONDS)
    count = int(units.program.max(initial=-1)) + 1
    # A ratio of two variances that are both estimated from such pairs.
    ratio, _ = variance_ratios(deviations, program, count, PAIR_FREEDOM / 2.0)
    chance = 2.0 * np.sqrt(4.0 / max(len(deviations), 1))
    ratio = np.maximum(1.0, ratio * np.exp(-chance))
    larger: Floats = ratio * (2.0 * ratio - 1.0)
    return larger[units.program]


def _excess(deviations: Floats, cells: Ints, count: int) -> Floats:
    """Return by how many times their variance the ``deviations`` of each cell certainly vary too
    much (count,); a cell with few deviations gets the value of all.
    """
    counts = np.bincount(cells, minlength=count).astype(np.float64)
    zeros = np.zeros(len(deviations))
    by_cell = extra_variances(deviations, zeros, cells, counts, FIRM_CLIP)
    every = extra_variance(deviations, zeros, float(len(deviations)), FIRM_CLIP)
    has_pairs = counts >= MIN_PAIRS
    pairs = np.where(has_pairs, counts, float(len(deviations)))
    # Successive pairs share a window, and a firm clip needs twice as many pairs.
    chance = np.exp(-CERTAIN * np.sqrt(2.0 / (pairs / 4.0)))
    excess: Floats = np.maximum(np.where(has_pairs, by_cell, every) * chance - 1.0, 0.0)
    return excess


def _changes(
    units: Units, values: Floats, series: Ints, width: float
) -> tuple[Ints, Floats, Floats, Floats, Floats]:
    """Compare each window of ``series`` with the one before it. Returns columns: the series, the
    difference, its variance, the part of the variance that is noise, and when the later window
    begins.
    """
    window = np.floor(units.middle / width)
    number = group(window, series)
    count = int(number.max(initial=-1)) + 1
    weight = 1.0 / units.variance
    mean = group_means(values, weight, number, count)
    variance = 1.0 / np.bincount(number, weight, count)
    time, window_series = np.zeros(count), np.zeros(count, np.int64)
    time[number], window_series[number] = window, series
    next_to = np.flatnonzero(
        (window_series[1:] == window_series[:-1]) & (time[1:] == time[:-1] + 1)
    )
    change: Floats = mean[next_to + 1] - mean[next_to]
    noise = np.bincount(number, weight**2 * (units.variance - units.wander), count) * variance**2
    begin: Floats = width * time[next_to + 1]
    variance, noise = variance[next_to] + variance[next_to + 1], noise[next_to] + noise[next_to + 1]
    return window_series[next_to], change, variance, noise, begin
