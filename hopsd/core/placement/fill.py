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
    columns, filled_choice = program.configurations, choice.copy()
    sizes = columns.shapes.sizes()
    remaining = program.capacity - program.usage(choice)
    uneven_jobs = []
    for job in np.flatnonzero((choice >= 0) & (choice != columns.present)).tolist():
        parts = columns.shapes.parts(int(columns.shape[choice[job]]))
        if len({gpus for _, gpus in parts}) > 1:
            uneven_jobs.append((parts[0][0], job))
    # In node order: what a job no longer takes of its last server may be another's first.
    for server, job in sorted(uneven_jobs):
        if remaining[server] <= 0:
            continue
        idle = remaining + program.usage(filled_choice[job : job + 1])
        for column in _fullest_first(program, sizes, job, int(filled_choice[job])):
            residual = idle - program.usage(np.array([column]))
            if np.all(residual >= 0):
                filled_choice[job], remaining = column, residual
                break
    return filled_choice


def _fullest_first(program: Program, sizes: Ints, job: int, column: int) -> list[int]:
    """The job's columns of the size of ``column`` on the same servers, those with most of the first
    one first. ``sizes`` (shapes,).
    """
    columns, shapes = program.configurations, program.configurations.shapes
    first, last = columns.start[job : job + 2].tolist()
    of_job = columns.shape[first:last]
    shape = columns.shape[column]
    begin, end = shapes.start[of_job], shapes.start[of_job + 1]
    item_begin, item_end = shapes.start[shape + np.arange(2)]
    matches = (sizes[of_job] == sizes[shape]) & (end - begin == item_end - item_begin)
    matches &= shapes.server[begin] == shapes.server[item_begin]
    matches &= shapes.server[end - 1] == shapes.server[item_end - 1]
    candidates = np.flatnonzero(matches)
    order = np.argsort(-shapes.gpus[begin[candidates]], kind="stable")
    best: list[int] = (first + candidates[order]).tolist()
    return best
