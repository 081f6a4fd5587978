"""Finds the batch of a backward pass from the module calls whose outputs are in its graph."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from itertools import combinations, islice
from math import prod
from typing import Any
from zlib import crc32

import torch
from hops_profiler.timing.batch import field_values

MAX_CALLS = 4096
"""Maximum number of outputs remembered until a backward pass; the latest ones lead to it."""

MAX_NODES = 4096
"""Maximum number of visited nodes; a larger graph is assumed to contain all calls."""

DEPTH = 4
"""Maximum nesting depth at which a module's arguments are searched for tensors."""

MAX_NUMBERS = 256
"""Number of first values of a tensor that are compared with those of others."""

MAX_PARTS = 1024
"""Maximum number of parts of a module's result searched for tensors."""

MAX_TERMS = 64
"""Maximum number of nodes of a loss that are visited to read the shapes of its terms."""

JOINTS = ("Stack", "Cat")
"""Prefixes of the names of nodes that join tensors."""

SELECTIONS = ("IndexBackward", "IndexSelect", "MaskedSelect")
"""Prefixes of the names of nodes that select rows."""

SLICES = ("Narrow", "Select", "Slice", "Split", "Unbind")
"""Prefixes of the names of nodes that take a part of a tensor: rows or features."""

MAX_SELECTING_NODES = 256
"""Maximum number of nodes, between a loss and the models' outputs, searched for selections."""

MAX_PARTED_TERMS = 8
"""Maximum number of terms of a loss whose calls are distinguished."""

MAX_ENTRIES = 4
"""Maximum number of loss entries per sample if several rows make one sample: colours or
coordinates. With more, the axis may be one of features over which rows were averaged."""

MIN_STEPS = 3
"""Minimum number of calls that are steps of several games; two may be views of the same samples."""

MIN_TERMS = 4
"""Number of loss terms that show that each step has one; of hundreds, not all are read."""

LOOKUPS = ("Embedding", "Index")
"""Prefixes of the names of nodes that look up rows of a parameter."""

LAYERS = (*LOOKUPS, "Addmm", "Baddbmm", "Bmm", "Convolution", "Mm", "Mv")
"""Prefixes of the names of nodes that combine parameters with data."""


class Call:
    """An outermost call of a module.

    - ``rows``: samples in its arguments. ``outputs``: rows of the tensor that it returned, 0 if it
      returned something else.
    - ``axes``: lengths of its inputs' second axes that may be batch axes. ``unclear``: either of
      the first two axes of its input may be the batch axis.
    - ``first_axes``: lengths of the first axes of its inputs.
    - ``features``: lengths of the axes after the first of what it returned. ``lengths``: lengths of
      all axes of its inputs and of what it returned.
    - ``nodes``: numbers of its outputs in the graph. ``since``: number of the last node before the
      call. Both are None if unknown.
    - ``passes_back``: an input that is no parameter requires a gradient. ``depends``: an input is
      the result of a graph.
    - ``is_words``: the only input is a vector of integers, and no layer shows whether they are one
      text.
    - Of the first input, ``is_made``: another call returned it; ``is_index``: it has integers;
      ``is_text``: it is a vector of integers or a single one; ``source``: its address in memory;
      ``storage``: the identity of its storage; ``content``: a checksum of its first values. The
      last two are None if unknown.
    - ``parameter``: identity of the first parameter that the call trains; ``width``: its shape.
    """

    __slots__ = (
        *(
            "axes",
            "content",
            "depends",
            "width",
            "features",
            "first_axes",
            "is_index",
            "is_made",
            "is_text",
            "is_words",
            "lengths",
        ),
        *("module", "nodes"),
        *("outputs", "parameter", "passes_back", "rows", "since", "source", "storage", "unclear"),
    )

    def __init__(self, module: int, rows: int, axes: set[int], source: int = 0) -> None:
        self.module = module
        self.rows = rows
        self.axes = axes
        self.source = source
        self.outputs = 0
        self.storage: int | None = None
        self.content: int | None = None
        self.parameter: int | None = None
        self.width: tuple[int, ...] = ()
        self.since: int | None = None
        self.unclear = self.passes_back = self.depends = self.is_made = self.is_index = False
        self.is_text = self.is_words = False
        self.features: set[int] = set()
        self.first_axes: set[int] = set()
        self.lengths: set[int] = set()
        self.nodes: set[int] | None = None

    def add_result(self, result: Any) -> None:
        """Note what the call returned while a graph was built."""
        tensors = tensors_returned(result)
        if isinstance(result, torch.Tensor) and result.dim():
            self.outputs = int(result.shape[0])
        self.features = {int(length) for tensor in tensors for length in tensor.shape[1:]}
        self.lengths |= {int(length) for tensor in tensors for length in tensor.shape}
        if tensors:
            nodes = [_number(tensor.grad_fn) for tensor in tensors if tensor.grad_fn is not None]
            self.nodes = None if None in nodes else {node for node in nodes if node is not None}


class Batch:
    """The batch of a backward pass: ``samples``, 0 if unknown.

    ``unclear`` is True in these cases:

    - A call is unclear.
    - The calls of a module differ in their rows, which may have to be added.
    - Calls lead to separate terms of the loss (``adds_terms``), so their rows may have to be added.
      If it is known that they have to, ``parts`` is their sum.
    - The loss, whose ``terms`` have these shapes, neither shows this number of samples nor selects
      some of them (``selects``).
    - There are twice the rows of one of the ``others``, calls that lead elsewhere (a batch of real
      rows and of generated ones).

    Further attributes:

    - ``rows``: total of all calls. ``outputs``: maximum number of rows that a call returned.
      ``axes``: see :class:`Call`. ``loss_rows``: see :func:`rows_of_loss`.
    - ``adds_calls``: the samples are calls of one row each. ``repeats_rows``: a module was called
      several times with more rows.
    - ``is_stage``: gradients come from another stage, or go to one. ``wants_gradient``: the input
      of a call requires a gradient.
    - ``graphless``: rows of the calls without a graph before the pass. ``unused_rows``: total of
      the calls with a graph that did not lead to it, such as those before `autograd.grad`.
    - ``sources``: memory of the calls' first inputs. ``contents``: checksums of it, None if it is
      on a GPU. ``is_made``: all inputs come from other calls.
    - ``own_rows``: samples that no model made, and that are no points between those and made ones,
      whose gradient is wanted. Half of them may have been made by a call that leads elsewhere.
    - ``parameters``: the first parameter that each called module trains. ``widths``: their shapes.
    - ``place``: the code that began the backward pass. ``read_axes``: lengths of the first axes of
      what loaders yielded before it; ``read_storages``: identities of its storages.
    """

    def __init__(
        self,
        calls: Collection[Call] = (),
        terms: Collection[set[tuple[int, ...]]] = (),
        *,
        selects: bool = False,
        adds_terms: bool = False,
        parts: int = 0,
        is_stage: bool = False,
        graphless: Sequence[int] = (),
        others: Sequence[int] = (),
        loss_rows: int = 0,
    ) -> None:
        self.rows = self.outputs = self.samples = self.own_rows = 0
        self.unclear, self.is_stage, self.graphless = adds_terms, is_stage, graphless
        self.unused_rows = 0
        self.loss_rows = loss_rows
        self.axes: set[int] = set()
        self._features: set[int] = set()
        self._lengths: set[int] = set()
        self.sources: set[tuple[int, int]] = set()
        self.contents: set[int] | None = set()
        self.parameters: set[int] = set()
        self.widths: set[tuple[int, ...]] = set()
        self.read_axes: set[int] = set()
        self.read_storages: set[int] = set()
        self.place: Any = None
        self.is_made = self.wants_gradient = self.adds_calls = False
        self._data_rows = self._made_rows = 0  # maximum of calls on data, and on calls' results
        for call in calls:
            self._add(call)
        self.is_made &= not any(not (call.is_made or call.depends) for call in calls)
        repeats = [own for own in _by_module(calls) if own[0].rows > 1]
        self.repeats_rows = any(len(own) > 1 for own in repeats) and not parts
        shapes = {shape for term in terms for shape in term}
        # Rows are not selected, but entries of each, if the loss has the rows of several calls.
        totals = {sum(call.rows for call in own) for own in repeats if len(own) > 1}
        selects = selects and not any(shape[0] in totals for shape in shapes)
        compared = shapes if not selects else set()
        if parts:
            self.samples = parts
        elif _is_one_of_divisors(compared, repeats):
            (self.samples,) = {shape[0] for shape in compared}
            self.unclear = any(call.unclear for call in calls)
        else:
            self._compare_calls(repeats, shapes)
            self.unclear |= sum(2 * rows == self.samples for rows in others) == 1
            if compared and self.samples > 1:
                self._compare_with_loss(compared, repeats)
        if any(not (call.is_made or call.depends or call.passes_back) for call in calls):
            is_half_made = any(2 * rows == self.samples for rows in (*others, *graphless))
            self.own_rows = self.samples // (1 + is_half_made)
        singles = [own for own in _by_module(calls) if own[0].rows == 1]
        self._count_steps(singles, terms)
        if self.samples == 1 and any(len(own) > 1 for own in singles):
            # A batch that led elsewhere may be what these calls were compared with.
            self.unclear |= any(rows > 1 for rows in others)
        if compared and self.samples == 1 and not self._shows_one(compared):
            self.unclear = True

    def _add(self, call: Call) -> None:
        self.rows += call.rows
        self.outputs = max(self.outputs, call.outputs)
        self.axes |= call.axes
        self._features |= call.features
        self._lengths |= call.lengths
        self.samples = max(self.samples, call.rows)
        self.unclear |= call.unclear
        self.is_stage |= call.passes_back
        self.wants_gradient |= call.passes_back
        self.is_made |= call.is_made
        if call.is_made or call.depends:
            self._made_rows = max(self._made_rows, call.rows)
        else:
            self._data_rows = max(self._data_rows, call.rows)
        if call.parameter is not None:
            self.parameters.add(call.parameter)
            self.widths.add(call.width)
        if call.storage is not None:
            self.sources.add((call.storage, call.source))
        if call.content is None:
            self.contents = None
        elif self.contents is not None and not (call.is_made or call.depends):
            self.contents.add(call.content)

    def _compare_calls(
        self, repeats: Sequence[Sequence[Call]], terms: Collection[tuple[int, ...]]
    ) -> None:
        """Compare the calls with several rows with each other. Calls of a module that differ in
        their rows are parts of a batch if the loss has all of these rows. A call on other calls'
        results may have more rows than those on data: several draws of each sample, or its parts.
        """
        for calls in repeats:
            rows = sum(call.rows for call in calls)
            differ = len({call.rows for call in calls}) > 1
            if differ and len(repeats) == 1 and any(rows == shape[0] for shape in terms):
                self.samples = rows
            self.unclear |= differ and self.samples != rows
        if self._made_rows == self.samples > self._data_rows > 0:
            if self._data_rows > 1 and _has_rows(terms, self._data_rows):
                self.samples = self._data_rows
            else:
                self.unclear = True

    def _count_steps(
        self, singles: Sequence[Sequence[Call]], terms: Collection[set[tuple[int, ...]]]
    ) -> None:
        """Count the calls of one row as samples if they are the steps of an episode: then the loss
        has a term or an entry for each.
        """
        steps = max((_steps_of(calls) for calls in singles), default=0)
        self.adds_calls = steps > max(1, self.samples)
        if self.adds_calls:
            self.samples = steps
            shapes = {shape for term in terms for shape in term}
            has_terms = len(terms) >= min(steps, MIN_TERMS) or _has_rows(shapes, steps)
            self.unclear |= (bool(terms) and not has_terms) or _are_of_a_sequence(singles)

    def _compare_with_loss(
        self, terms: Collection[tuple[int, ...]], repeats: Sequence[Sequence[Call]]
    ) -> None:
        """Check the samples against the loss: one of its terms has an axis of that length, or a
        first axis with several entries for each sample (words of texts).

        The loss decides if it has an entry for each sample of several rows (points of a ray,
        pairs), or if each step of several games is a call. In the other cases either number may be
        that of the samples: modules are given one of its axes (sequences) and two axes merged into
        one (their steps); the loss has the rows of all calls of a module (views); or it compares
        all rows of one call with each other (views in one call).
        """
        samples = self.samples
        for calls in repeats:
            rows = calls[0].rows * len(calls)
            stacks = {(len(calls), calls[0].rows), (calls[0].rows, len(calls))}
            is_whole = any(rows == prod(shape) or shape in stacks for shape in terms)
            if samples < rows and is_whole and _are_steps(calls):
                self.samples = rows
                return
            self.unclear |= samples < rows and is_whole and _are_observed(calls)
            repeats_rows = len(calls) > 1 and any(samples < shape[0] == rows for shape in terms)
            self.unclear |= repeats_rows
        given_rows = {calls[0].rows for calls in repeats}
        # If the loss is over all pairs of the rows of two modules, as of texts and the places in
        # them, or of functions and points, either module's rows may be the samples.
        self.unclear |= any(
            samples * other in (shape[0], prod(shape[:2])) and shape[0] != samples
            for shape in terms
            for other in given_rows - {samples}
        )
        # If a term has only a fraction of the samples as entries, each of these may be made of
        # several rows (molecules of atoms). But texts have terms with more entries than samples,
        # besides the term with fewer (experts).
        has_more = any(shape[0] > samples and shape[0] % samples == 0 for shape in terms)
        self.unclear |= not has_more and any(
            samples == shape[0] and other[0] not in self._features and _divides(other, samples)
            for shape in terms
            for other in terms
        )
        if any(samples in shape for shape in terms):
            whole = sum(call.rows == samples for calls in repeats for call in calls)
            compares_rows = any(shape[:2] == (samples, samples) for shape in terms)
            self.unclear |= compares_rows and whole == 1 and samples not in self._features
            return
        is_divided = False
        for shape in terms:
            entries = [prod(shape[:axes]) for axes in range(1, len(shape) + 1)]
            if samples in entries[:2]:
                self.unclear |= bool(given_rows & set(shape[:2]))
            else:
                is_divided |= any(1 < n < samples and samples % n == 0 for n in entries)
        if is_divided and not has_more:
            first_axes = {shape[0] for shape in terms}
            entries_each = max(prod(shape[1:]) for shape in terms)
            (n,) = first_axes if len(first_axes) == 1 else (0,)
            divides = n > 1 and not any(rows % n for rows in given_rows)
            if divides and entries_each <= MAX_ENTRIES and n not in self._features:
                self.samples = n
            else:
                self.unclear = True
        elif not _has_rows(terms, samples):
            n = _rows_beside(repeats, terms)
            self.samples = n or samples
            self.unclear |= not n

    def _shows_one(self, terms: Collection[tuple[int, ...]]) -> bool:
        """Whether all entries of the loss may be of one sample: they lie along axes of its calls'
        inputs or results, or are made of these. The loss of a model on the weights of another model
        has other axes.
        """
        lengths = {length for length in self._lengths if length > 1}
        return any(shape[0] == 1 or shape[0] + 1 in lengths for shape in terms) or any(
            shape[0] % length == 0 for shape in terms for length in lengths
        )


def _by_module(calls: Iterable[Call]) -> list[list[Call]]:
    """Groups of calls by module, and separately for one row and for several rows."""
    groups: dict[tuple[int, bool], list[Call]] = {}
    for call in calls:
        if call.rows:
            groups.setdefault((call.module, call.rows > 1), []).append(call)
    return list(groups.values())


def _of_other_rows(calls: Iterable[Call]) -> list[Call]:
    """One of the ``calls`` for each different input: the same points may be joined anew for the
    equation and for its data.
    """
    kept: list[Call] = []
    for call in calls:
        content = call.content, call.rows
        if not any(
            call.source == other.source
            or (None not in content and content == (other.content, other.rows))
            for other in kept
        ):
            kept.append(call)
    return kept


def _is_one_of_divisors(
    terms: Collection[tuple[int, ...]], repeats: Sequence[Sequence[Call]]
) -> bool:
    """Whether all terms of a loss have an entry for each row of some call, and the other calls have
    a multiple of these rows.
    """
    first_axes = {shape[0] for shape in terms}
    rows_given = {call.rows for calls in repeats for call in calls}
    is_one = len(first_axes) == 1 and 1 not in first_axes and first_axes < rows_given
    return is_one and not any(rows % n for rows in rows_given for n in first_axes)


def _rows_beside(calls: Sequence[Sequence[Call]], terms: Iterable[tuple[int, ...]]) -> int:
    """Number of samples if the only call is given all parts of the samples, joined, and beside them
    a number for each sample, such as its offset or its length; the result and the loss have as many
    rows. Otherwise 0.
    """
    rows = {shape[0] for shape in terms}
    is_one = len(calls) == len(calls[0]) == len(rows) == 1
    shown = calls[0][0].first_axes & {calls[0][0].outputs}
    return max(rows) if is_one and rows == shown else 0


def _has_rows(terms: Iterable[tuple[int, ...]], samples: int) -> bool:
    """Whether the first axis of a loss term, or its first two axes together, have an integer number
    of entries per sample.
    """
    return any(prod(shape[:axes]) % samples == 0 for shape in terms for axes in (1, 2))


def _divides(shape: tuple[int, ...], samples: int) -> bool:
    """Whether a term of this shape has a few entries for each of several equal parts of samples."""
    is_part = 1 < shape[0] < samples and samples % shape[0] == 0
    return is_part and prod(shape[1:]) <= MAX_ENTRIES


def _are_of_a_sequence(singles: Iterable[Sequence[Call]]) -> bool:
    """Whether calls of one row may be the words of a text: each is looked up by its number, and
    other calls use the results.
    """
    looks_up = any(len(calls) > 1 and all(call.is_index for call in calls) for calls in singles)
    return looks_up and any(call.depends for calls in singles for call in calls)


def _steps_of(calls: Sequence[Call]) -> int:
    """Samples of a module's calls of one row each. Each call is a sample (an episode's step),
    unless all are steps through one existing sequence: each takes the previous result, and a part
    of the same tensor or a word's number; or they are parts of a tensor that is trained itself.
    """
    depend = sum(call.depends or call.passes_back for call in calls) >= len(calls) - 1
    storages = {call.storage for call in calls}
    is_whole = len(storages) == 1 and storages != {None}
    return 1 if depend and (is_whole or all(call.is_index for call in calls)) else len(calls)


def _are_steps(calls: Sequence[Call]) -> bool:
    """Whether calls of a module are steps of several games: each takes different rows, and none
    takes the result of another call, as a recurrent cell does.
    """
    # The memory of an input that is gone may be that of the next one.
    inputs = {(call.source, call.content) for call in calls}
    return MIN_STEPS <= len(calls) == len(inputs) and not any(call.depends for call in calls)


def _are_observed(calls: Sequence[Call]) -> bool:
    """Whether a recurrent cell is given a different storage in each call, as for steps of games;
    the steps of an existing sequence share one.
    """
    storages = {call.storage for call in calls if not call.is_made}
    return MIN_STEPS <= len(calls) == len(storages) and None not in storages


class Calls:
    """The calls that have not led to a backward pass yet."""

    def __init__(self) -> None:
        self._by_node: dict[int, Call] = {}
        self._without_nodes: list[Call] = []  # may or may not lead to a backward pass
        self._last: list[Call] = []  # since the last backward pass

    def add(self, call: Call) -> None:
        if len(self._last) < MAX_CALLS:
            self._last.append(call)
        if call.nodes is None:
            self._without_nodes.append(call)
        else:
            self._by_node.update(dict.fromkeys(call.nodes, call))
        while len(self._by_node) > MAX_CALLS:
            del self._by_node[next(iter(self._by_node))]

    def forget(self) -> None:
        self._by_node.clear()
        self._without_nodes.clear()
        self._last.clear()

    def take(self, roots: Any, gradients: Any = None, graphless: Sequence[int] = ()) -> Batch:
        """Return the batch of the backward pass from the tensors ``roots``, and forget its calls.
        ``gradients`` are those of the roots if the caller gives them; ``graphless``: see
        :class:`Batch`.

        Several calls in one pass (an actor and a critic, two views of an image, a recurrent cell)
        are over the same samples. Calls of a module with one row each (an episode's steps) add up.
        """
        by_node = self._by_node
        nodes = _nodes_in_graph(roots, by_node)
        in_graph = {by_node[node] for node in (by_node if nodes is None else nodes)}
        if nodes is not None:
            in_graph |= _calls_inside(_edge(roots), set(by_node.values()) - in_graph)
        calls = [*self._without_nodes, *in_graph]
        terms = dict(_terms(roots, {call.rows for call in calls}))
        terms = {node: terms[node] for node in terms if not is_of_parameters(node)} or terms
        if nodes is not None and any(call.passes_back for call in in_graph):
            terms = self._without_gradients(terms, in_graph)
        adds_terms, parts = False, 0
        if nodes is not None:
            only = len(in_graph) == len(set(by_node.values())) and not graphless
            adds_terms, parts = self._parts(in_graph, terms, only=only)
        unused = [call.rows for call in self._last if call not in in_graph and call.nodes]
        others = [] if nodes is None else unused
        self._without_nodes.clear()
        self._last.clear()
        in_numbers = {node for call in in_graph for node in call.nodes or ()}
        for node in in_numbers:
            by_node.pop(node, None)
        batch = Batch(
            calls,
            terms.values(),
            selects=_selects(terms, in_numbers),
            adds_terms=adds_terms and not parts,
            parts=parts,
            is_stage=gradients is not None and any(t.numel() > 1 for t in tensors_in(roots, 1)),
            graphless=graphless,
            loss_rows=rows_of_loss(roots),
            others=[*others, *graphless] if nodes is not None else (),
        )
        batch.unused_rows = sum(others)
        return batch

    def _without_gradients(
        self, terms: dict[Any, set[tuple[int, ...]]], calls: Collection[Call]
    ) -> dict[Any, set[tuple[int, ...]]]:
        """The ``terms`` without those over gradients by a call's input alone (forces on atoms), if
        others are over its output (energies of molecules): these show the samples.
        """
        if not 1 < len(terms) <= MAX_PARTED_TERMS:
            return terms
        by_node = {node: call for call in calls for node in call.nodes or ()}
        direct: set[Call] = set()
        kept = []
        for term in terms:
            nodes = _nodes_below([term], by_node)
            if nodes is None:
                return terms
            direct |= {by_node[node] for node in nodes}
            kept += [term] if nodes else []
        others = [term for term in terms if term not in kept]
        if any(not _calls_inside([term], calls) <= direct for term in others):
            return terms
        if _selects(kept, by_node, (*SELECTIONS, *SLICES)):
            return terms  # points with data are among those of the equation
        return {term: terms[term] for term in kept} or terms

    def _parts(
        self, calls: Collection[Call], terms: Mapping[Any, set[tuple[int, ...]]], *, only: bool
    ) -> tuple[bool, int]:
        """Return whether two calls of a module with different inputs share no term of the loss (the
        points in an area and at its border, or two tasks), and the total samples of the module's
        calls if each leads to separate terms with one or a few entries for each of its rows. Of
        many terms, the first ones show only whether they are shared.

        Results of other calls are no samples beside real ones, nor are points between both, used
        for a gradient penalty. Calls with equal rows may still be over real and generated data;
        they are not if gradients by the input are wanted and these are the ``only`` calls.
        """
        by_module: dict[int, list[Call]] = {}
        makes = any(call.is_made or call.depends for call in calls)
        for call in calls:
            is_made = call.is_made or call.depends or (makes and call.passes_back)
            if call.rows > 1 and not is_made:
                by_module.setdefault(call.module, []).append(call)
        several = [own for own in map(_of_other_rows, by_module.values()) if len(own) > 1]
        if not several or len(terms) < 2:
            return False, 0
        is_whole = len(terms) <= MAX_PARTED_TERMS
        terms = dict(islice(terms.items(), MAX_PARTED_TERMS))
        numbers_of: dict[Call, set[int]] = {}
        for number, term in enumerate(terms):
            nodes = _nodes_below([term], self._by_node)
            if nodes is None:
                return False, 0
            below = {self._by_node[node] for node in nodes}
            for call in below | _calls_inside([term], set(calls) - below):
                numbers_of.setdefault(call, set()).add(number)
        shapes, parted, samples = list(terms.values()), False, 0
        for own in several:
            seen = [call for call in own if call in numbers_of]
            apart = [
                not numbers_of[one] & numbers_of[other] for one, other in combinations(seen, 2)
            ]
            parted |= any(apart)
            match = all(
                shape[0] == call.rows and prod(shape[1:]) <= MAX_ENTRIES
                for call in seen
                for number in numbers_of[call]
                for shape in shapes[number]
            )
            differ = len({call.rows for call in own}) == len(own)
            wanted = only and len(by_module) == 1 and any(call.passes_back for call in own)
            is_seen = is_whole and len(seen) == len(own)
            if is_seen and all(apart) and match and (differ or wanted):
                samples = max(samples, sum(call.rows for call in own))
        return parted, samples


def tensors_in(value: Any, depth: int) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif depth and isinstance(value, (list, tuple)):
        for part in value:
            yield from tensors_in(part, depth - 1)
    elif depth and isinstance(value, dict):
        for part in value.values():
            yield from tensors_in(part, depth - 1)
    elif depth and is_dataclass(value) and not isinstance(value, type):
        for part in field_values(value):
            yield from tensors_in(part, depth - 1)


def checksum(tensor: torch.Tensor, before: int = 0) -> int | None:
    """Checksum of the first values of a tensor, continuing from ``before``. None if the tensor is
    on a GPU, for which we would have to wait, is not strided, or wraps other tensors, as
    DTensor does, whose ranks would communicate.
    """
    if hasattr(tensor, "__tensor_flatten__"):
        return None
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided:
        return None
    return crc32(repr(tensor.detach().flatten()[:MAX_NUMBERS].tolist()).encode(), before)


def tensors_returned(result: Any) -> list[torch.Tensor]:
    """Tensors in a result, including those in attributes of objects, such as distributions. The
    result may contain cycles or be large.
    """
    tensors: list[torch.Tensor] = []
    parts: list[Any] = [result]
    for part in parts:  # the list grows in the loop
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
    """A node's number, unique within the thread that made it. None before PyTorch 2.1."""
    number = getattr(node, "_sequence_nr", None)
    return None if number is None else int(number())


def _terms(roots: Any, rows: Collection[int] = (1,)) -> Iterator[tuple[Any, set[tuple[int, ...]]]]:
    """Nodes of the tensors whose sums or means make up the loss, with the tensors' shapes; empty
    before PyTorch 2.3. Numbers that are joined into a tensor are sums or means of terms, unless
    they may be of one sample each, as calls have one row or ``rows`` is as many.
    """
    nodes = _edge(roots)
    visits = set(nodes)
    for node in nodes:  # the list grows in the loop
        sizes = _sizes(node)
        if sizes and (1 in rows or not _joins_numbers(node, rows)):
            yield node, sizes
            continue
        for further, _ in node.next_functions:
            if further is not None and further not in visits and len(visits) < MAX_TERMS:
                visits.add(further)
                nodes.append(further)


def _sizes(node: Any) -> set[tuple[int, ...]]:
    """Shapes of a node's results with more than one entry."""
    sizes = {tuple(output.shape) for output in getattr(node, "_input_metadata", ())}
    return {size for size in sizes if prod(size) > 1}


def _joins_numbers(node: Any, rows: Collection[int]) -> bool:
    """Whether a node's result is a vector of numbers that were joined, and possibly weighted; not
    if their number is one of ``rows``.
    """
    nodes, (length, *others) = [node], max(_sizes(node))
    if others or length in rows:
        return False
    for part in nodes:  # the list grows in the loop
        inputs = [further for further, _ in part.next_functions if further is not None]
        if type(part).__name__.startswith(JOINTS):
            return not any(map(_sizes, inputs))
        if len(nodes) > DEPTH:
            break
        nodes += [further for further in inputs if _sizes(further) == {(length,)}]
    return False


def rows_of_loss(roots: Any) -> int:
    """Length of the first axis of the first term of a loss; 0 if it has none."""
    return _first_axis(shapes for node, shapes in _terms(roots) if not is_of_parameters(node))


def rows_of_layers(roots: Any) -> int:
    """Rows of the batch if no module is called: the length of the first axis that all loss terms
    share, if a layer that takes the data has it, too, and all layers have that many rows or a
    multiple; else 0.
    """
    terms = [(node, shapes) for node, shapes in _terms(roots) if not is_of_parameters(node)]
    lengths = {shape[0] for _, shapes in terms for shape in shapes}
    if len(lengths) != 1:
        return 0
    (rows,) = lengths
    nodes = [node for node, _ in terms]
    visits, begins = set(nodes), False
    for node in nodes:  # the list grows in the loop
        inputs = [further for further, _ in node.next_functions]
        if type(node).__name__.startswith(LAYERS) and not is_of_parameters(node):
            shapes = [output.shape for output in node._input_metadata]
            if any(map(is_of_parameters, inputs)) and shapes and len(shapes[0]):
                if shapes[0][0] % rows:
                    return 0
                meets_data = all(map(is_of_parameters, filter(None, inputs)))
                begins |= meets_data and shapes[0][0] == rows
        for further in inputs:
            if further is not None and further not in visits:
                if len(visits) >= MAX_NODES:
                    return 0
                visits.add(further)
                nodes.append(further)
    return rows if begins else 0


def is_of_parameters(node: Any, depth: int = DEPTH) -> bool:
    """Whether a node depends on parameters alone, like a transposed weight."""
    if node is None or not depth or type(node).__name__.startswith(LOOKUPS):
        return False
    inputs = [further for further, _ in node.next_functions]
    return all(is_of_parameters(further, depth - 1) for further in inputs)


def is_of_leaves(tensor: torch.Tensor) -> bool:
    """Whether a tensor was computed from data alone whose gradient is wanted: the coordinates of
    points that are joined for a model, or rows with an attack. False if a parameter of a module
    took part, or if the graph is too large.
    """
    nodes = _edge(tensor)
    visits = set(nodes)
    for node in nodes:  # the list grows in the loop
        if isinstance(getattr(node, "variable", None), torch.nn.Parameter):
            return False
        for further, _ in node.next_functions:
            if further is not None and further not in visits:
                if len(visits) >= MAX_SELECTING_NODES:
                    return False
                visits.add(further)
                nodes.append(further)
    return True


def number_of_loss(roots: Any) -> int:
    """Number of the first node of a loss: the count of nodes that its thread made before it."""
    if type(roots) is not torch.Tensor:  # `isinstance` would take three times as long
        roots = next(tensors_in(roots, 1), None)
    return 0 if roots is None else number_of(roots)


def number_of(tensor: torch.Tensor) -> int:
    """Number of the node that made ``tensor``; 0 if there is none or its number is unknown."""
    node = tensor.grad_fn
    return 0 if node is None else _number(node) or 0


def _first_axis(terms: Iterable[set[tuple[int, ...]]]) -> int:
    return next((min(shapes)[0] for shapes in terms), 0)


def _selects(
    terms: Iterable[Any], outputs: Collection[int], selections: tuple[str, ...] = SELECTIONS
) -> bool:
    """Whether rows are selected between ``outputs`` (numbers of nodes) and the terms of a loss, as
    for the labelled nodes of a graph; ``selections`` are prefixes of the names of such nodes.
    """
    nodes = list(terms)
    visits = set(nodes)
    for node in nodes:  # the list grows in the loop
        if type(node).__name__.startswith(selections):
            return True
        for further, _ in node.next_functions if _number(node) not in outputs else ():
            is_new = further is not None and further not in visits
            if is_new and len(visits) < MAX_SELECTING_NODES:
                visits.add(further)
                nodes.append(further)
    return False


def _nodes_in_graph(roots: Any, numbers: Collection[int]) -> list[int] | None:
    """Those of ``numbers`` whose nodes are in the graph of ``roots``; None if it is too large."""
    edge = _edge(roots)
    return _nodes_below(edge, numbers) if edge else None


def _edge(roots: Any) -> list[Any]:
    """The nodes that made ``roots``."""
    return [tensor.grad_fn for tensor in tensors_in(roots, 1) if tensor.grad_fn is not None]


def _calls_inside(edge: list[Any], calls: Collection[Call]) -> set[Call]:
    """Those of ``calls`` with inner nodes below the nodes in ``edge``, as when a loss or one of its
    terms is over gradients of what a model returned.
    """
    spans = [(call.since, max(call.nodes), call) for call in calls if call.since and call.nodes]
    numbers = {number for since, last, _ in spans for number in range(since + 1, last)}
    nodes = (_nodes_below(edge, numbers) if len(numbers) < MAX_NODES else None) or []
    return {call for since, last, call in spans for node in nodes if since < node < last}


def _nodes_below(edge: list[Any], numbers: Collection[int]) -> list[int] | None:
    """Those of ``numbers`` whose nodes are below the nodes in ``edge``; None if the graph is too
    large.
    """
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
