"""Find the best columns of segments on upper envelopes of lines.

At given prices, a column of one block is worth ``factor * slowness - cost`` to a job, where only
the factor depends on the job. So every column is a line over the factor, and each job's best column
is on the lines' upper envelope, which consists of few lines: the work grows with jobs plus servers
instead of their product.
"""

from __future__ import annotations

import numpy as np

from hopsd.core.placement.program import Program, SegmentValues
from hopsd.model.arrays import Floats, Ints


def best_of_segments(program: Program, values: SegmentValues, cost: Floats) -> tuple[Floats, Ints]:
    """Return the largest ``value - cost`` in every segment, and its column: (segments,) each.

    ``cost`` (items,) is the cost of every item.
    """
    segments = values.segments
    best, column = (
        segments.slowness[segments.at] * values.factor - cost[segments.item],
        segments.start[:-1].copy(),
    )
    for block in segments.blocks:
        costs = cost[block.item + block.order]
        lines = upper_envelope(block.slowness, costs)
        slope, intercept = block.slowness[lines], costs[lines]
        factor = values.factor[block.segments]
        # Faster columns come first: line k is above line k + 1 for factors above the k-th break.
        breaks = np.diff(intercept) / np.diff(slope)
        line = len(lines) - 1 - np.searchsorted(breaks[::-1], factor)
        best[block.segments] = factor * slope[line] - intercept[line]
        column[block.segments] += block.order[lines[line]]
    if segments.share is not None:
        best -= cost[segments.share]
    if len(values.stay):
        segment = segments.find(values.stay)
        profit = values.worth - program.per_column(cost, values.stay)
        higher = profit > best[segment]
        best[segment[higher]], column[segment[higher]] = profit[higher], values.stay[higher]
    return best, column


def upper_envelope(slope: Floats, intercept: Floats) -> Ints:
    """Return the lines ``slope * x - intercept`` that are highest at some x > 0, by falling slope.

    ``slope`` (lines,) must not increase. At least one line is returned.
    """
    lowest = np.minimum.accumulate(intercept)
    cheaper = np.append(True, intercept[1:] < lowest[:-1])
    # Among equally fast lines, the last of these is the cheapest.
    cheapest = np.flatnonzero(cheaper)
    cheapest = cheapest[np.append(slope[cheapest[1:]] != slope[cheapest[:-1]], True)]
    hull: list[int] = []
    x, y = slope[cheapest].tolist(), intercept[cheapest].tolist()
    for line in range(len(x)):
        while len(hull) > 1:
            a, b = hull[-2], hull[-1]
            # b stays only if it is below the chord from a to the new line.
            if (y[a] - y[b]) * (x[b] - x[line]) > (y[b] - y[line]) * (x[a] - x[b]):
                break
            hull.pop()
        hull.append(line)
    lines: Ints = cheapest[hull]
    return lines
