"""Uneven shapes as Slurm gives them: a job's nodes, in node order, each give all that is idle."""

from __future__ import annotations

import numpy as np

from hopsd.core.placement.program import Program
from hopsd.model.arrays import Ints


def as_filled(program: Program, choice: Ints) -> Ints:
    """``choice`` (jobs,), where each uneven shape has all of its servers but the last that the
    other jobs leave of them.

    A job that leaves GPUs of its first server to nobody takes them instead of some of its last;
    its speed is the same. Where it runs now, it stays.
    """
    columns, filled = program.configurations, choice.copy()
    left = program.capacity - program.taken(choice)
    spread = []
    for job in np.flatnonzero((choice >= 0) & (choice != columns.present)).tolist():
        parts = columns.shapes.parts(int(columns.shape[choice[job]]))
        if len(parts) > 1:
            spread.append((parts[0][0], job))
    # In node order: what a job no longer takes of its last server may be another's first.
    for server, job in sorted(spread):
        if left[server] <= 0:
            continue
        idle = left + program.taken(filled[job : job + 1])
        for column in _fullest_first(program, job, int(filled[job])):
            residual = idle - program.taken(np.array([column]))
            if np.all(residual >= 0):
                filled[job], left = column, residual
                break
    return filled


def _fullest_first(program: Program, job: int, column: int) -> list[int]:
    """The job's columns on the servers of ``column``, those with most of the first one first."""
    columns, shapes = program.configurations, program.configurations.shapes
    first, last = columns.start[job : job + 2].tolist()
    of_job = columns.shape[first:last]
    begin, end = shapes.start[of_job], shapes.start[of_job + 1]
    at, until = shapes.start[columns.shape[column] + np.arange(2)]
    same = (end - begin == until - at) & (shapes.server[begin] == shapes.server[at])
    same &= shapes.server[end - 1] == shapes.server[until - 1]
    found = np.flatnonzero(same)
    order = np.argsort(-shapes.gpus[begin[found]], kind="stable")
    best: list[int] = (first + found[order]).tolist()
    return best
