"""What a choice leaves open, as a program of its own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hopsd.core.placement.program import Program
from hopsd.model.arrays import Ints, distinct


def remaining(program: Program, choice: Ints) -> tuple[Program, Ints]:
    """Return the program of the jobs that ``choice`` (jobs,) leaves out, within the capacity that
    it leaves, and its columns' old numbers. Jobs keep their numbers and columns their values; items
    that no column takes are left out. The program's columns must be written out.
    """
    capacity = program.capacity - program.usage(choice)
    keep = program.fitting(choice < 0, capacity)
    columns, shapes = program.configurations.select(keep), program.configurations.shapes
    items = distinct(program.items(keep))
    number = np.zeros(len(columns.demands), dtype=np.int32)
    number[items] = np.arange(len(items))
    columns = replace(
        columns,
        shapes=shapes.select(items[items < len(shapes)]),
        demands=columns.demands.select(items),
        capacity=capacity,
        shape=number[columns.shape],
        share=None if columns.share is None else number[columns.share],
    )
    base, value = program.base[keep], program.value[keep]
    return replace(program, configurations=columns, capacity=capacity, base=base, value=value), keep
