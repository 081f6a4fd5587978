"""Uneven shapes as Slurm allocates them: a job's nodes, in node order, each give all idle GPUs."""

from __future__ import annotations

import numpy as np

from hopsd.core.placement.program import Program
from hopsd.model.arrays import Ints


def as_filled(program: Program, choice: Ints) -> Ints:
    """Return ``choice`` (jobs,) with uneven shapes that fill their first server.

    Such a job takes GPUs there that no other job was given, instead of as many GPUs of its last
    server, which is as fast. Jobs that stay where they run are left alone.
    """
    columns, filled_choice = program.configurations, choice.copy()
    sizes = columns.shapes.sizes()
    remaining = program.capacity - program.usage(choice)
    uneven_jobs = []
    for job in np.flatnonzero((choice >= 0) & (choice != columns.present)).tolist():
        parts = columns.shapes.parts(int(columns.shape[choice[job]]))
        if len({gpus for _, gpus in parts}) > 1:
            uneven_jobs.append((parts[0][0], job))
    # Jobs go in node order: GPUs freed on the last server of one may be on the first of another.
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
    """Return the job's columns of the size of ``column`` on the same servers.

    Those with the most GPUs on the first server come first. ``sizes``: GPUs by shape, (shapes,).
    """
    columns, shapes = program.configurations, program.configurations.shapes
    first, last = columns.start[job : job + 2].tolist()
    job_shapes = columns.shape[first:last]
    shape = columns.shape[column]
    begin, end = shapes.start[job_shapes], shapes.start[job_shapes + 1]
    item_begin, item_end = shapes.start[shape + np.arange(2)]
    matches = (sizes[job_shapes] == sizes[shape]) & (end - begin == item_end - item_begin)
    matches &= shapes.server[begin] == shapes.server[item_begin]
    matches &= shapes.server[end - 1] == shapes.server[item_end - 1]
    candidates = np.flatnonzero(matches)
    order = np.argsort(-shapes.gpus[begin[candidates]], kind="stable")
    best: list[int] = (first + candidates[order]).tolist()
    return best
