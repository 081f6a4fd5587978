"""Detects backward passes that add to the gradients of the previous one, if no hook sees steps."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from hops_profiler.timing.passes import checksum, tensors_in

MAX_NODES = 256
"""Maximum number of nodes of a graph searched for a parameter."""


class KeptGradient:
    """Watches the gradient of one parameter.

    A pass adds to the gradient in place, which PyTorch counts, like `zero_` and clipping. It does
    not count `grad.data.zero_()`, which only the values show: they are read on CPUs, whereas a GPU
    may not have computed them yet.
    """

    def __init__(self) -> None:
        self._parameter: Callable[[], Any] = _none
        # Identity, version and a checksum of the values after the last pass.
        self._state: tuple[int, int, int | None] | None = None

    def is_kept(self, roots: Any) -> bool:
        """Whether the pass that begins from ``roots`` finds the gradient of the last pass."""
        parameter = self._parameter()
        if parameter is None:
            parameter = _parameter_of(roots)
            self._parameter = _none if parameter is None else weakref.ref(parameter)
            self._state = None
        return self._state is not None and self._state == _state(parameter)

    def note(self) -> None:
        """Note the end of a pass. If it left the gradient as it was, another model was trained,
        one of whose parameters the next pass shows.
        """
        parameter = self._parameter()
        before, self._state = self._state, None if parameter is None else _state(parameter)
        if before is not None and before == self._state:
            self._parameter, self._state = _none, None


def _none() -> None:
    """Stands for a parameter that is gone."""


def _state(parameter: torch.Tensor) -> tuple[int, int, int | None] | None:
    gradient = parameter.grad
    if gradient is None:
        return None
    return id(gradient), gradient._version, checksum(gradient)


def _parameter_of(roots: Any) -> Any:
    """The first parameter in the graph of ``roots``, or else the first tensor with a gradient."""
    nodes = [tensor.grad_fn for tensor in tensors_in(roots, 1) if tensor.grad_fn is not None]
    visits, first = set(nodes), None
    for node in nodes:  # the list grows in the loop
        variable = getattr(node, "variable", None)  # of a node that accumulates a gradient
        if isinstance(variable, torch.nn.Parameter):
            return variable
        first = variable if first is None else first
        for further, _ in node.next_functions:
            if further is not None and further not in visits and len(visits) < MAX_NODES:
                visits.add(further)
                nodes.append(further)
    return first
