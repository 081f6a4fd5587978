"""What a backward pass is over: the calls of modules whose outputs are in its graph."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from typing import Any

import torch

MOST_CALLS = 4096
"""Calls remembered until a backward pass; the last ones lead to it."""

MOST_NODES = 4096
"""Nodes of a graph that are visited. Calls found by then to be in it or not are known to be; of
the others it is assumed."""

DEPTH = 4
"""How deep tensors lie in what a module returns."""


class Call:
    """An outermost call of a module. ``rows``: samples that it was given. ``outputs``: rows of the
    tensor that it returned, 0 if it returned something else. ``axes``: lengths of its inputs'
    second axes, where these may be the batch's. ``nodes``: numbers of its outputs in the graph;
    None if that cannot be told.
    """

    __slots__ = ("axes", "module", "nodes", "outputs", "rows")

    def __init__(self, module: int, rows: int, axes: set[int]) -> None:
        self.module = module
        self.rows = rows
        self.axes = axes
        self.outputs = 0
        self.nodes: set[int] | None = None

    def returned(self, result: Any) -> None:
        """Note what the call returned, while a graph is built."""
        tensors = list(_tensors(result, DEPTH))
        if isinstance(result, torch.Tensor) and result.dim():
            self.outputs = int(result.shape[0])
        if tensors:
            nodes = [_number(tensor.grad_fn) for tensor in tensors if tensor.grad_fn is not None]
            self.nodes = None if None in nodes else {node for node in nodes if node is not None}


class Batch:
    """What a backward pass is over. ``samples``: 0 if unknown. ``rows``: given to modules in all.
    ``outputs``: returned by the one that returned most. ``axes``: see :class:`Call`. ``mixed``: the
    calls of a module differ in their rows, so it is unknown whether these are to be added.
    """

    def __init__(self, calls: Iterable[Call] = ()) -> None:
        self.rows = self.outputs = self.samples = 0
        self.mixed = False
        self.axes: set[int] = set()
        singles: Counter[int] = Counter()
        rows_by_module: dict[int, int] = {}
        for call in calls:
            self.rows += call.rows
            self.outputs = max(self.outputs, call.outputs)
            self.axes |= call.axes
            self.samples = max(self.samples, call.rows)
            if call.rows == 1:
                singles[call.module] += 1
            elif call.rows > 1:
                self.mixed |= rows_by_module.setdefault(call.module, call.rows) != call.rows
        self.samples = max(self.samples, *singles.values(), 0)


class Calls:
    """The calls since the last backward pass that they led to."""

    def __init__(self) -> None:
        self._calls: deque[Call] = deque(maxlen=MOST_CALLS)

    def add(self, call: Call) -> None:
        self._calls.append(call)

    def forget(self) -> None:
        self._calls.clear()

    def take(self, roots: Any) -> Batch:
        """What the backward pass from the tensors ``roots`` is over; those calls are forgotten.

        Several calls in one pass (an actor and a critic, two views of an image, a recurrent cell's)
        get the same samples. Those of a module with one row each (an episode's steps) add up.
        """
        wanted = {node for call in self._calls for node in call.nodes or ()}
        missing = _missing(roots, wanted)
        led = [c for c in self._calls if c.nodes is None or not c.nodes <= missing]
        unused = [c for c in self._calls if c.nodes is not None and c.nodes <= missing]
        self._calls.clear()
        self._calls.extend(unused)
        return Batch(led)


def _tensors(value: Any, depth: int) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif depth and isinstance(value, (list, tuple)):
        for part in value:
            yield from _tensors(part, depth - 1)
    elif depth and isinstance(value, dict):
        for part in value.values():
            yield from _tensors(part, depth - 1)


def _number(node: Any) -> int | None:
    """A node's number: unique among those that its thread has made. None before PyTorch 2.1."""
    number = getattr(node, "_sequence_nr", None)
    return None if number is None else int(number())


def _missing(roots: Any, wanted: set[int]) -> set[int]:
    """The nodes of ``wanted`` that are known not to be in the graph of ``roots``."""
    missing = set(wanted)
    edge = [tensor.grad_fn for tensor in _tensors(roots, 1) if tensor.grad_fn is not None]
    if not edge:
        return set()
    seen = set(edge)
    while edge and missing:
        node = edge.pop()
        missing.discard(_number(node) or 0)
        for further, _ in node.next_functions:
            if further is not None and further not in seen:
                if len(seen) >= MOST_NODES:
                    return set()
                seen.add(further)
                edge.append(further)
    return missing
