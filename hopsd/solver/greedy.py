"""A feasible plan without any solver: the floor under every answer."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hopsd.core.program import Program
from hopsd.core.shapes import Floats, Ints


def greedy(program: Program, prices: Floats | None = None) -> Ints:
    """Jobs by weight, each takes the free column of the largest value less the GPUs' prices.

    ``prices`` (servers,) of a GPU; without them this is the limit of eq. 11 for a large lambda.
    Returns the choice (jobs,): every job's column, -1 for none.
    """
    choice = np.full(program.configurations.jobs, -1, dtype=np.int64)
    order = np.lexsort((np.arange(len(choice)), -program.weight))
    return fill(program, choice, order, prices)


def fill(program: Program, choice: Ints, order: Ints, prices: Floats | None = None) -> Ints:
    """Place jobs of ``order`` that have no column yet on what is idle; changes no other job."""
    columns, shapes = program.configurations, program.configurations.shapes
    choice = choice.copy()
    free = program.capacity - program.taken(choice)
    cost = shapes.prices(prices) if prices is not None else None
    for job in order.tolist():
        if choice[job] >= 0:
            continue
        first, last = columns.start[job], columns.start[job + 1]
        ids = columns.shape[first:last]
        worth = program.value[first:last]
        if cost is not None:
            worth = worth - cost[ids]
        fits = _fits(program, ids, free)
        if not fits.any():
            continue
        best = int(np.argmax(np.where(fits, worth, -np.inf)))
        choice[job] = first + best
        for server, gpus in shapes.parts(int(ids[best])):
            free[server] -= gpus
    return choice


def _fits(program: Program, ids: npt.NDArray[np.int32], free: Ints) -> npt.NDArray[np.bool_]:
    shapes = program.configurations.shapes
    fits = shapes.gpus[shapes.start[ids]] <= free[shapes.server[shapes.start[ids]]]
    for at in np.flatnonzero(fits & (shapes.start[ids + 1] - shapes.start[ids] > 1)).tolist():
        fits[at] = all(gpus <= free[server] for server, gpus in shapes.parts(int(ids[at])))
    return fits
