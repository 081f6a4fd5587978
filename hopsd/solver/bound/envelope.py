"""The best columns of segments: upper envelopes of lines.

At given prices, a column of one block is worth ``factor * slowness - cost`` to a job, where only
the factor is the job's. So every column is a line over the factor, and the best one of each job is
on the lines' upper envelope, which has few of them: jobs plus servers in place of their product.
"""

from __future__ import annotations

import numpy as np

from hopsd.core.placement.program import Program, SegmentValues
from hopsd.model.arrays import Floats, Ints


def best_of_segments(program: Program, values: SegmentValues, cost: Floats) -> tuple[Floats, Ints]:
    """The largest ``value - cost`` of every segment's columns, and its column: (segments,) each.

    ``cost``: of every item, (items,).
    """
    own = values.segments
    best, at = own.slowness[own.at] * values.factor - cost[own.item], own.start[:-1].copy()
    for block in own.blocks:
        costs = cost[block.item + block.order]
        lines = upper_envelope(block.slowness, costs)
        slope, less = block.slowness[lines], costs[lines]
        factor = values.factor[block.segments]
        # Faster ones come first: line k is above line k + 1 for factors above the k-th break.
        breaks = np.diff(less) / np.diff(slope)
        line = len(lines) - 1 - np.searchsorted(breaks[::-1], factor)
        best[block.segments] = factor * slope[line] - less[line]
        at[block.segments] += block.order[lines[line]]
    if own.share is not None:
        best -= cost[own.share]
    if len(values.stay):
        segment = own.find(values.stay)
        profit = values.worth - program.per_column(cost, values.stay)
        higher = profit > best[segment]
        best[segment[higher]], at[segment[higher]] = profit[higher], values.stay[higher]
    return best, at


def upper_envelope(slope: Floats, less: Floats) -> Ints:
    """The lines ``slope * x - less`` that are highest at some x > 0, by falling slope.

    ``slope`` (lines,) must fall or stay the same. There is at least one.
    """
    lowest = np.minimum.accumulate(less)
    cheaper = np.append(True, less[1:] < lowest[:-1])
    # Of equally fast ones the last of these is the cheapest.
    some = np.flatnonzero(cheaper)
    some = some[np.append(slope[some[1:]] != slope[some[:-1]], True)]
    kept: list[int] = []
    x, y = slope[some].tolist(), less[some].tolist()
    for line in range(len(x)):
        while len(kept) > 1:
            a, b = kept[-2], kept[-1]
            # b stays only if it is below the chord from a to the new line.
            if (y[a] - y[b]) * (x[b] - x[line]) > (y[b] - y[line]) * (x[a] - x[b]):
                break
            kept.pop()
        kept.append(line)
    found: Ints = some[kept]
    return found
