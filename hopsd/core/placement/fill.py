"""Uneven shapes as Slurm gives them: a job's nodes, in node order, each give all that is idle."""

from __future__ import annotations

import numpy as np

from hopsd.core.placement.program import Program
from hopsd.model.arrays import Ints


def as_filled(program: Program, choice: Ints) -> Ints:
    """``choice`` (jobs,), where uneven shapes take of their first server what no job is given.

    A job takes them in place of as many GPUs of its last server, which is as fast. Where it runs
    now, it stays.
    """
    columns, filled = program.configurations, choice.copy()
    sizes = columns.shapes.sizes()
    left = program.capacity - program.taken(choice)
    uneven = []
    for job in np.flatnonzero((choice >= 0) & (choice != columns.present)).tolist():
        parts = columns.shapes.parts(int(columns.shape[choice[job]]))
        if len({gpus for _, gpus in parts}) > 1:
            uneven.append((parts[0][0], job))
    # In node order: what a job no longer takes of its last server may be another's first.
    for server, job in sorted(uneven):
        if left[server] <= 0:
            continue
        idle = left + program.taken(filled[job : job + 1])
        for column in _fullest_first(program, sizes, job, int(filled[job])):
            residual = idle - program.taken(np.array([column]))
            if np.all(residual >= 0):
                filled[job], left = column, residual
                break
    return filled


def _fullest_first(program: Program, sizes: Ints, job: int, column: int) -> list[int]:
    """The job's columns of the size of ``column`` on the same servers, those with most of the first
    one first. ``sizes`` (shapes,).
    """
    columns, shapes = program.configurations, program.configurations.shapes
    first, last = columns.start[job : job + 2].tolist()
    of_job = columns.shape[first:last]
    own = columns.shape[column]
    begin, end = shapes.start[of_job], shapes.start[of_job + 1]
    at, until = shapes.start[own + np.arange(2)]
    same = (sizes[of_job] == sizes[own]) & (end - begin == until - at)
    same &= shapes.server[begin] == shapes.server[at]
    same &= shapes.server[end - 1] == shapes.server[until - 1]
    found = np.flatnonzero(same)
    order = np.argsort(-shapes.gpus[begin[found]], kind="stable")
    best: list[int] = (first + found[order]).tolist()
    return best
