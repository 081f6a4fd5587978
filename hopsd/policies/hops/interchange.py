"""Reorders jobs that could swap columns: the first of them in the queue gets the best one."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from hopsd.core.placement.program import Program
from hopsd.model.arrays import Ints


def in_queue_order(program: Program, choice: Ints) -> Ints:
    """Reassign the columns in ``choice`` (jobs,) among interchangeable jobs by their weight.

    Waiting jobs are interchangeable if their columns take the same resources and gain the same.
    A solver that stops within its gap may prefer any of them; this never lowers the objective.
    """
    start, ordered_choice = program.configurations.start, choice.copy()
    for jobs in _interchangeable(program, choice):
        job_choice = choice[jobs]
        is_placed = job_choice >= 0
        columns = job_choice[is_placed]
        best_first = np.argsort(-program.gain(columns), kind="stable")
        offsets = (job_choice - start[jobs])[is_placed][best_first]
        ordered_choice[jobs] = -1
        first = jobs[: len(offsets)]
        ordered_choice[first] = start[first] + offsets
    return ordered_choice


def _interchangeable(program: Program, choice: Ints) -> Iterable[Ints]:
    """Yield groups of at least two jobs that differ only in weight, in descending weight."""
    columns = program.configurations
    groups: dict[tuple[bytes, ...], list[int]] = {}
    for job in program.by_weight().tolist():
        first, last = columns.start[job : job + 2].tolist()
        if columns.present[job] >= 0 or first == last:
            continue
        job_columns = slice(first, last)
        key = [
            columns.shape[job_columns].tobytes(),
            (program.base[job_columns] / program.least[job]).tobytes(),
        ]
        if columns.share is not None:
            key.append(columns.share[job_columns].tobytes())
        groups.setdefault(tuple(key), []).append(job)
    for group in groups.values():
        jobs = np.array(group, dtype=np.int64)
        if len(jobs) > 1 and (choice[jobs] >= 0).any():
            yield jobs
