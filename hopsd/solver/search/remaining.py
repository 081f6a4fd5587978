"""What a choice leaves open, as a program of its own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hopsd.core.placement.demands import Demands
from hopsd.core.placement.program import Program
from hopsd.core.placement.shapes import Shapes, ramp
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
    is_shape = items < len(shapes)
    lengths, entry = columns.demands.entries(items)
    demands = Demands(_starts(lengths), columns.demands.row[entry], columns.demands.amount[entry])
    number = np.zeros(len(columns.demands), dtype=np.int32)
    number[items] = np.arange(len(items))
    columns = replace(
        columns,
        shapes=_some_shapes(shapes, items[is_shape]),
        demands=demands,
        capacity=capacity,
        shape=number[columns.shape],
        share=None if columns.share is None else number[columns.share],
    )
    base, value = program.base[keep], program.value[keep]
    return replace(program, configurations=columns, capacity=capacity, base=base, value=value), keep


def _some_shapes(shapes: Shapes, selection: Ints) -> Shapes:
    lengths = np.diff(shapes.start)[selection]
    entry = np.repeat(shapes.start[selection], lengths) + ramp(lengths)
    return Shapes(_starts(lengths), shapes.server[entry], shapes.gpus[entry])


def _starts(lengths: Ints) -> Ints:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
