"""Finds the axes of a model's input that are time, from the products by which it attends."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any

import torch
from hops_profiler.timing.passes import is_of_parameters

MAX_NODES = 256
"""Maximum number of nodes searched for products: the last layers of a model."""

FUSED = "ScaledDotProduct"
"""Prefix of the names of nodes that attend."""

PRODUCTS = ("Bmm", "Baddbmm", FUSED)
"""Prefixes of the names of nodes that multiply matrices for each sample, or attend."""


def attended_axes(tensors: Iterable[torch.Tensor], first: int, second: int) -> set[int]:
    """Those of the first two axes (0 and 1) of a model's input whose entries attend to each other,
    for each entry of the other axis. These are axes of time, as samples do not attend to others.

    ``tensors`` is what the model returned, with a graph; ``first`` and ``second`` are the lengths
    of the two axes.
    """
    axes = set()
    for *batch, rows in _products(tensors):
        axes |= {0} if rows == first and prod(batch) % second == 0 else set()
        axes |= {1} if rows == second and prod(batch) % first == 0 else set()
    return axes


def _products(tensors: Iterable[torch.Tensor]) -> Iterable[tuple[int, ...]]:
    """Lengths of all but the last axis of each product whose factors all depend on data, that is,
    none is made of parameters alone. A product of matrices has a score for each pair of entries.
    """
    nodes: list[Any] = [tensor.grad_fn for tensor in tensors if tensor.grad_fn is not None]
    visits = set(nodes)
    for node in nodes:  # the list grows in the loop
        name = type(node).__name__
        if name.startswith(PRODUCTS):
            shape = tuple(node._input_metadata[0].shape)
            parts = [further for further, _ in node.next_functions]
            is_square = len(shape) > 2 and (shape[-1] == shape[-2] or name.startswith(FUSED))
            if is_square and not any(map(is_of_parameters, parts)):
                yield shape[:-1]
        for further, _ in node.next_functions:
            if further is not None and further not in visits and len(visits) < MAX_NODES:
                visits.add(further)
                nodes.append(further)
