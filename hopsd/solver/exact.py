"""The integer program as written, to CBC: exact where it is small."""

from __future__ import annotations

import numpy as np

from hopsd.core.program import Program
from hopsd.core.shapes import Floats, Ints, ramp
from hopsd.solver.cbc import Model


def model(program: Program, columns: Ints, *, integer: bool) -> Model:
    """Eq. 11 to 13 over some ``columns`` of the program, sorted; a row a job, then a server."""
    configurations, shapes = program.configurations, program.configurations.shapes
    jobs = configurations.jobs
    job = np.searchsorted(configurations.start, columns, side="right") - 1
    ids = configurations.shape[columns].astype(np.int64)
    lengths = shapes.start[ids + 1] - shapes.start[ids]
    part = np.repeat(shapes.start[ids], lengths) + ramp(lengths)
    start = np.concatenate([[0], np.cumsum(lengths + 1)])
    row = np.empty(start[-1], dtype=np.int64)
    factor = np.ones(start[-1])
    row[start[:-1]] = job
    rest = np.ones(start[-1], dtype=bool)
    rest[start[:-1]] = False
    row[rest] = jobs + shapes.server[part]
    factor[rest] = shapes.gpus[part]
    upper = np.concatenate([np.ones(jobs), program.capacity.astype(np.float64)])
    scale = float(program.value[columns].max(initial=0.0)) or 1.0
    objective = program.value[columns] / scale
    return Model(objective, start, row, factor, upper, np.ones(len(columns)), integer)


def choice_of(program: Program, columns: Ints, x: Floats) -> Ints | None:
    """The choice that ``x`` over ``columns`` stands for; None unless it is whole and feasible."""
    if not np.all(np.abs(x - np.round(x)) < 1e-4):
        return None
    chosen = columns[np.round(x) == 1.0]
    job = np.searchsorted(program.configurations.start, chosen, side="right") - 1
    if len(np.unique(job)) != len(job) or np.any((np.round(x) != 0.0) & (np.round(x) != 1.0)):
        return None
    choice = np.full(program.configurations.jobs, -1, dtype=np.int64)
    choice[job] = chosen
    return choice if program.feasible(choice) else None
