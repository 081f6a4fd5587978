"""The batch of a backward pass: the calls of modules whose outputs are in its graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from math import prod
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

MAX_TERMS = 64
"""Terms of a loss whose shapes are read."""

SELECTIONS = ("Index", "MaskedSelect")
"""Beginnings of the names of nodes that select rows."""

MAX_SELECTING_NODES = 256
"""Nodes between a loss and what models returned among which these are looked for."""

MAX_PARTED_TERMS = 8
"""Terms of a loss whose calls are told apart."""


class Call:
    """An outermost call of a module. ``rows``: samples in its arguments. ``outputs``: rows of the
    tensor that it returned, 0 if it returned something else. ``axes``: lengths of its inputs'
    second axes, if these may be the batch's. ``nodes``: numbers of its outputs in the graph; None
    if unknown. ``unclear``: either of its input's first two axes may be the batch's.
    ``passes_back``: an input is no parameter and is to have a gradient. ``source``: where its first
    input begins in memory.
    """

    __slots__ = ("axes", "module", "nodes", "outputs", "passes_back", "rows", "source", "unclear")

    def __init__(self, module: int, rows: int, axes: set[int], source: int = 0) -> None:
        self.module = module
        self.rows = rows
        self.axes = axes
        self.source = source
        self.outputs = 0
        self.unclear = self.passes_back = False
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
    unclear, or the calls of a module differ in their rows, which may have to be added, as those may
    that lead to terms of their own (``adds_terms``); or the loss, whose terms have the shapes
    ``terms``, is over another number of samples and does not select some of them (``selects``).

    ``adds_calls``: its samples are calls of one row; ``repeats_rows``: a module was called several
    times with more rows. ``is_stage``: its gradients come from elsewhere, or go there.
    ``graphless``: rows of the calls without a graph before it.
    """

    def __init__(
        self,
        calls: Iterable[Call] = (),
        terms: Collection[tuple[int, ...]] = (),
        *,
        selects: bool = False,
        adds_terms: bool = False,
        is_stage: bool = False,
        graphless: Sequence[int] = (),
    ) -> None:
        self.rows = self.outputs = self.samples = 0
        self.unclear, self.is_stage, self.graphless = adds_terms, is_stage, graphless
        self.axes: set[int] = set()
        singles: Counter[int] = Counter()
        repeats: Counter[int] = Counter()
        rows_by_module: dict[int, int] = {}
        for call in calls:
            self.rows += call.rows
            self.outputs = max(self.outputs, call.outputs)
            self.axes |= call.axes
            self.samples = max(self.samples, call.rows)
            self.unclear |= call.unclear
            self.is_stage |= call.passes_back
            if call.rows == 1:
                singles[call.module] += 1
            elif call.rows > 1:
                repeats[call.module] += 1
                self.unclear |= rows_by_module.setdefault(call.module, call.rows) != call.rows
        if terms and self.samples > 1 and not selects:
            added_rows = {rows_by_module[module] * count for module, count in repeats.items()}
            self._compare_with_loss(terms, set(rows_by_module.values()), added_rows)
        self.repeats_rows = max(repeats.values(), default=0) > 1
        self.adds_calls = max(singles.values(), default=0) > max(1, self.samples)
        self.samples = max(self.samples, *singles.values(), 0)

    def _compare_with_loss(
        self, terms: Collection[tuple[int, ...]], rows: set[int], added_rows: set[int]
    ) -> None:
        """Compare the samples with the loss, a second source: usually one of its terms has an axis
        of that length.

        Where several rows make one entry of the loss (points of a ray, two views), or modules are
        given one of its axes (sequences) and two of them in one (their steps), or it has the rows
        of all calls of a module (steps of several games), either may be the sample.
        """
        samples = self.samples
        if any(samples < shape[0] and shape[0] in added_rows for shape in terms):
            self.unclear = True
        if any(samples in shape for shape in terms):
            return
        for shape in terms:
            entries = [prod(shape[:axes]) for axes in range(1, len(shape) + 1)]
            if samples in entries[:2]:
                self.unclear |= bool(rows & set(shape[:2]))
            else:
                self.unclear |= any(1 < n < samples and samples % n == 0 for n in entries)


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

    def take(self, roots: Any, gradients: Any = None, graphless: Sequence[int] = ()) -> Batch:
        """The batch of the backward pass from the tensors ``roots``, and the ``gradients`` of
        these, if others gave them; forgets its calls. ``graphless``: see :class:`Batch`.

        Several calls in one pass (an actor and a critic, two views of an image, a recurrent cell's)
        get the same samples. Those of a module with one row each (an episode's steps) add up.
        """
        by_node = self._by_node
        nodes = _nodes_in_graph(roots, by_node)
        in_graph = {by_node[node] for node in (by_node if nodes is None else nodes)}
        calls = [*self._without_nodes, *in_graph]
        terms = _terms(roots)
        adds_terms = nodes is not None and self._have_terms_of_their_own(in_graph, list(terms))
        self._without_nodes.clear()
        in_numbers = {node for call in in_graph for node in call.nodes or ()}
        for node in in_numbers:
            by_node.pop(node, None)
        return Batch(
            calls,
            set().union(*terms.values()),
            selects=_selects(terms, in_numbers),
            adds_terms=adds_terms,
            is_stage=gradients is not None and any(t.numel() > 1 for t in tensors_in(roots, 1)),
            graphless=graphless,
        )

    def _have_terms_of_their_own(self, calls: Collection[Call], terms: Sequence[Any]) -> bool:
        """True if two calls of a module with inputs of their own lead to no term of the loss
        together: the points in an area and at its border, or two tasks.
        """
        sources: dict[int, set[int]] = {}
        for call in calls:
            if call.rows > 1:
                sources.setdefault(call.module, set()).add(call.source)
        several = {module for module, places in sources.items() if len(places) > 1}
        if not several or not 1 < len(terms) <= MAX_PARTED_TERMS:
            return False
        terms_of: dict[Call, set[int]] = {}
        for number, term in enumerate(terms):
            nodes = _nodes_below([term], self._by_node)
            if nodes is None:
                return False
            for node in nodes:
                terms_of.setdefault(self._by_node[node], set()).add(number)
        parted = [(call, numbers) for call, numbers in terms_of.items() if call.module in several]
        return any(
            one.module == other.module and one.source != other.source and not numbers & others
            for one, numbers in parted
            for other, others in parted
        )


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


def _terms(roots: Any) -> dict[Any, set[tuple[int, ...]]]:
    """Nodes of the tensors whose sums or means make the loss, and the shapes of these; empty before
    PyTorch 2.3.
    """
    terms: dict[Any, set[tuple[int, ...]]] = {}
    nodes = [tensor.grad_fn for tensor in tensors_in(roots, 1) if tensor.grad_fn is not None]
    visits = set(nodes)
    for node in nodes:  # which grows meanwhile
        sizes = {tuple(output.shape) for output in getattr(node, "_input_metadata", ())}
        sizes = {size for size in sizes if prod(size) > 1}
        if sizes:
            terms[node] = sizes
            continue
        for further, _ in node.next_functions:
            if further is not None and further not in visits and len(visits) < MAX_TERMS:
                visits.add(further)
                nodes.append(further)
    return terms


def _selects(terms: Iterable[Any], outputs: Collection[int]) -> bool:
    """Whether rows are selected between ``outputs``, numbers of nodes, and the terms of a loss, as
    the nodes of a graph that have labels.
    """
    nodes = list(terms)
    visits = set(nodes)
    for node in nodes:  # which grows meanwhile
        if type(node).__name__.startswith(SELECTIONS):
            return True
        for further, _ in node.next_functions if _number(node) not in outputs else ():
            is_new = further is not None and further not in visits
            if is_new and len(visits) < MAX_SELECTING_NODES:
                visits.add(further)
                nodes.append(further)
    return False


def _nodes_in_graph(roots: Any, numbers: Collection[int]) -> list[int] | None:
    """Those of ``numbers`` that are nodes in the graph of ``roots``; None if it is too large."""
    edge = [tensor.grad_fn for tensor in tensors_in(roots, 1) if tensor.grad_fn is not None]
    return _nodes_below(edge, numbers) if edge else None


def _nodes_below(edge: list[Any], numbers: Collection[int]) -> list[int] | None:
    """Those of ``numbers`` that are nodes below those in ``edge``; None if there are too many."""
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
