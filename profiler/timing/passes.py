"""The batch of a backward pass: the calls of modules whose outputs are in its graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from typing import Any

import torch

MAX_CALLS = 4096
"""Outputs remembered until a backward pass, which the last ones lead to."""

MAX_NODES = 4096
"""Nodes of a graph that are visited; a larger graph is assumed to contain all calls."""

DEPTH = 4
"""Nesting depth at which tensors are looked for in what a module is given."""

MAX_PARTS = 1024
"""Parts of what a module returns in which tensors are looked for."""


class Call:
    """An outermost call of a module. ``rows``: samples in its arguments. ``outputs``: rows of the
    tensor that it returned, 0 if it returned something else. ``axes``: lengths of its inputs'
    second axes, if these may be the batch's. ``nodes``: numbers of its outputs in the graph; None
    if unknown. ``unclear``: either of its input's first two axes may be the batch's.
    """

    __slots__ = ("axes", "module", "nodes", "outputs", "rows", "unclear")

    def __init__(self, module: int, rows: int, axes: set[int]) -> None:
        self.module = module
        self.rows = rows
        self.axes = axes
        self.outputs = 0
        self.unclear = False
        self.nodes: set[int] | None = None

    def add_result(self, result: Any) -> None:
        """Note what the call returned, while a graph is built."""
        tensors = _tensors_returned(result)
        if isinstance(result, torch.Tensor) and result.dim():
            self.outputs = int(result.shape[0])
        if tensors:
            nodes = [_number(tensor.grad_fn) for tensor in tensors if tensor.grad_fn is not None]
            self.nodes = None if None in nodes else {node for node in nodes if node is not None}


class Batch:
    """The batch of a backward pass. ``samples``: 0 if unknown. ``rows``: of all calls together.
    ``outputs``: most rows that a call returned. ``axes``: see :class:`Call`. ``unclear``: a call is
    unclear, or the calls of a module differ in their rows, which may have to be added.
    """

    def __init__(self, calls: Iterable[Call] = ()) -> None:
        self.rows = self.outputs = self.samples = 0
        self.unclear = False
        self.axes: set[int] = set()
        singles: Counter[int] = Counter()
        rows_by_module: dict[int, int] = {}
        for call in calls:
            self.rows += call.rows
            self.outputs = max(self.outputs, call.outputs)
            self.axes |= call.axes
            self.samples = max(self.samples, call.rows)
            self.unclear |= call.unclear
            if call.rows == 1:
                singles[call.module] += 1
            elif call.rows > 1:
                self.unclear |= rows_by_module.setdefault(call.module, call.rows) != call.rows
        self.samples = max(self.samples, *singles.values(), 0)


class Calls:
    """The calls that have not led to a backward pass yet."""

    def __init__(self) -> None:
        self._by_node: dict[int, Call] = {}
        self._without_nodes: list[Call] = []  # they may or may not lead to a backward pass

    def add(self, call: Call) -> None:
        if call.nodes is None:
            self._without_nodes.append(call)
        else:
            self._by_node.update(dict.fromkeys(call.nodes, call))
        while len(self._by_node) > MAX_CALLS:
            del self._by_node[next(iter(self._by_node))]

    def forget(self) -> None:
        self._by_node.clear()
        self._without_nodes.clear()

    def take(self, roots: Any) -> Batch:
        """The batch of the backward pass from the tensors ``roots``; forgets its calls.

        Several calls in one pass (an actor and a critic, two views of an image, a recurrent cell's)
        get the same samples. Those of a module with one row each (an episode's steps) add up.
        """
        by_node = self._by_node
        nodes = _nodes_in_graph(roots, by_node)
        in_graph = {by_node[node] for node in (by_node if nodes is None else nodes)}
        calls = [*self._without_nodes, *in_graph]
        self._without_nodes.clear()
        for call in in_graph:
            for node in call.nodes or ():
                by_node.pop(node, None)
        return Batch(calls)


def tensors_in(value: Any, depth: int) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif depth and isinstance(value, (list, tuple)):
        for part in value:
            yield from tensors_in(part, depth - 1)
    elif depth and isinstance(value, dict):
        for part in value.values():
            yield from tensors_in(part, depth - 1)


def _tensors_returned(result: Any) -> list[torch.Tensor]:
    """Tensors of a result, those in its objects' attributes included: distributions hold theirs so.
    The result may be a cycle, or large.
    """
    tensors: list[torch.Tensor] = []
    parts: list[Any] = [result]
    for part in parts:  # which grows meanwhile
        inner: Iterable[Any] = ()
        if isinstance(part, torch.Tensor):
            tensors.append(part)
        elif isinstance(part, (list, tuple)):
            inner = part
        elif isinstance(part, dict):
            inner = part.values()
        elif hasattr(part, "__dict__") and not isinstance(part, (type, torch.nn.Module)):
            inner = vars(part).values()
        parts.extend(islice(inner, max(0, MAX_PARTS - len(parts))))
    return tensors


def _number(node: Any) -> int | None:
    """A node's number, unique among those made by its thread. None before PyTorch 2.1."""
    number = getattr(node, "_sequence_nr", None)
    return None if number is None else int(number())


def _nodes_in_graph(roots: Any, numbers: Collection[int]) -> list[int] | None:
    """Those of ``numbers`` that are nodes in the graph of ``roots``; None if it is too large."""
    edge = [tensor.grad_fn for tensor in tensors_in(roots, 1) if tensor.grad_fn is not None]
    if not edge:
        return None
    nodes: list[int] = []
    visits = set(edge)
    while edge and len(nodes) < len(numbers):
        node = edge.pop()
        number = _number(node)
        if number is not None and number in numbers:
            nodes.append(number)
        for further, _ in node.next_functions:
            if further is not None and further not in visits:
                if len(visits) >= MAX_NODES:
                    return None
                visits.add(further)
                edge.append(further)
    return nodes
