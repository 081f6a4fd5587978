"""Which axis of a model's input is time, from the products by which it attends."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any

import torch
from hops_profiler.timing.passes import is_of_parameters

MAX_NODES = 256
"""Nodes before what a model returned among which products are looked for: its last layers."""

PRODUCTS = ("Bmm", "Baddbmm", "ScaledDotProduct")
"""Beginnings of the names of nodes that multiply matrices for each sample, or attend."""


def attended_axes(tensors: Iterable[torch.Tensor], first: int, second: int) -> set[int]:
    """Those of the first two axes of a model's input, 0 and 1, whose entries attend to each other,
    for each entry of the other axis: axes of time, of which other samples are not a part.

    ``tensors`` are what the model returned, with a graph; ``first`` and ``second`` the lengths.
    """
    axes = set()
    for *batch, rows in _products(tensors):
        axes |= {0} if rows == first and prod(batch) % second == 0 else set()
        axes |= {1} if rows == second and prod(batch) % first == 0 else set()
    return axes


def _products(tensors: Iterable[torch.Tensor]) -> Iterable[tuple[int, ...]]:
    """Lengths of a product's axes but for the last one, where none of its parts is of parameters
    alone: rows of what is attended to, and of what is seen there.
    """
    nodes: list[Any] = [tensor.grad_fn for tensor in tensors if tensor.grad_fn is not None]
    visits = set(nodes)
    for node in nodes:  # which grows meanwhile
        name = type(node).__name__
        if name.startswith(PRODUCTS):
            shape = tuple(node._input_metadata[0].shape)
            parts = [further for further, _ in node.next_functions]
            if len(shape) > 2 and not any(map(is_of_parameters, parts)):
                yield shape[:-1]
        for further, _ in node.next_functions:
            if further is not None and further not in visits and len(visits) < MAX_NODES:
                visits.add(further)
                nodes.append(further)
