"""Inspects the inputs of forward passes, in only a few iterations as it slows them down."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from contextlib import suppress
from threading import get_ident
from time import perf_counter
from types import FunctionType
from typing import Any

import torch
from hops_profiler.timing.attention import attended_axes
from hops_profiler.timing.batch import is_integer_vector, samples_given, samples_of
from hops_profiler.timing.handlers import raised_by_one
from hops_profiler.timing.passes import (
    DEPTH,
    MAX_CALLS,
    Batch,
    Call,
    Calls,
    checksum,
    is_of_leaves,
    number_of,
    rows_of_layers,
    tensors_in,
    tensors_returned,
)
from torch.multiprocessing import reductions

StorageWeakRef: Any = reductions.StorageWeakRef

CONVOLUTIONS = (torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d)

# True while torch.compile traces our hooks into the user's graph. They must vanish there: a clock
# cannot be compiled, and fullgraph=True would reject the user's code. Absent before PyTorch 2.3.
is_compiling: Callable[[], bool] = getattr(torch.compiler, "is_compiling", lambda: False)

# The same for code that only torch.compile traces, not torch.export: half the time of a call.
is_tracing: Callable[[], bool] = getattr(torch.compiler, "is_dynamo_compiling", is_compiling)


class Inputs:
    """Inspects calls of modules while ``looking``; ``seconds`` is the cost of this inspection.

    Counts the outermost module calls whose outputs are in the graph of a backward pass, which
    excludes evaluations, rollouts and teachers. Modules without parameters, such as a loss over all
    words of all texts, count only if there are no others; the modules they call are outermost.

    The forward pass of a custom autograd function builds no graph of its own, but leads to a
    backward pass: modules called in it count, or the function's arguments if there are none.

    If something is compiled, only calls of compiled objects are inspected at first: torch.compile
    may be tracing the call of a module, and would compile our hook into it. If no compiled object
    begins a graph, these objects are helpers of an eager model, and the next inspection covers
    modules.

    If no module was ever called, the layers in the graph show the batch.
    """

    def __init__(self, clear: Callable[[set[int]], None]) -> None:
        self._clear = clear
        self.looking = False
        self.seconds = 0.0
        self._compiles = False
        self._compiled_model = False
        self._has_batch = False  # a backward pass was inspected since something was compiled
        self._has_call = False  # True once any call was seen
        self._owners: list[Any] = []
        self._hooks: dict[Any, tuple[Any, Any]] = {}  # by class and method: ours and the original
        self._thread = 0
        self._depth = 0
        self._calls = Calls()
        self._call: Call | None = None  # the current outermost call
        self._graphless: list[int] = []  # rows of the outermost calls without a graph
        # Storage that calls took and returned, by identity. An identity is not reused as long as
        # its reference is kept here.
        self._given: dict[int, Any] = {}
        self._given_before: dict[int, Any] = {}
        self._returned: dict[int, Any] = {}
        self._read_axes: set[int] = set()  # lengths of the first two axes of loaded tensors
        self._read_storages: set[int] = set()  # their storages
        self._in_graphless = False
        self._other_rows = 0  # rows passed to modules without parameters, and to functions
        self._inside_other = False  # within a call of a module without parameters
        self._in_function = False
        self._function: Any = None
        # The outermost call's input, until its batch axis is known.
        self._sequence: torch.Tensor | None = None
        self._in_layer = False  # the outermost call has called a layer
        self._slices: dict[
            int, int
        ] = {}  # by layer: number of calls with the rows of the second axis

    def attach(self) -> None:
        """Hook into compiled functions, which call no module that could be hooked."""
        compile_ = torch.compile

        @functools.wraps(compile_)
        def compile_and_hook(*args: Any, **kwargs: Any) -> Any:
            self.rest()
            self._note_compiled()
            result = compile_(*args, **kwargs)
            model = args[0] if args else kwargs.get("model")
            if not isinstance(result, FunctionType) or model is None:
                return result  # a module, or a decorator that compiles later

            @functools.wraps(result)
            def observe(*args: Any, **kwargs: Any) -> Any:
                if not self.looking or is_compiling():
                    return result(*args, **kwargs)
                if torch.is_grad_enabled() and not _within_graph(args):
                    self._compiled_model = True
                return self._observe(result, None, args, kwargs)

            return observe

        torch.compile = compile_and_hook

    def look(self, *, search: bool = True) -> None:
        """Begin an inspection of this thread; ``search`` looks for new classes of modules."""
        if self.looking and not self._sees_helpers:
            self._forget()
            return
        self.rest()
        if not self._compiles and _has_compiled():
            self._note_compiled()
        helpers = self._has_batch and not self._compiled_model
        if self._compiles and not helpers:
            self._owners = [_compiled_module()]
        elif search or self._compiles:
            self._owners = [torch.nn.Module, *_with_call_methods(torch.nn.Module)]
        if not self._compiles:
            self._hook_functions()
        self._thread, self._depth = get_ident(), 0
        self._forget()
        for owner in self._owners:
            self._hook(owner)
        for owner in (torch.nn.Module, torch.optim.Optimizer):
            self._hook_clearing(owner)
        self.looking = True

    def _note_compiled(self) -> None:
        """Note that something was compiled, which may be the model from now on."""
        self._compiles = True
        self._has_batch = False

    @property
    def _sees_helpers(self) -> bool:
        """True if this inspection covers compiled objects and none of them began a graph."""
        modules = torch.nn.Module in self._owners
        return self._compiles and self._has_batch and not (self._compiled_model or modules)

    def _hook_functions(self) -> None:
        """Hook into `torch.autograd.Function.apply`."""
        original = vars(torch.autograd.Function)["apply"]

        @functools.wraps(torch.autograd.Function.apply)
        def apply(kind: Any, *args: Any, **kwargs: Any) -> Any:
            call = original.__get__(None, kind)  # a class method; in C since PyTorch 2.14
            if not self.looking or is_compiling() or get_ident() != self._thread:
                return call(*args, **kwargs)
            outermost = torch.is_grad_enabled() and self._depth == 0 and not self._in_function
            if not outermost or not any(_requires_grad(value) for value in args):
                return call(*args, **kwargs)
            self._note_function(args)
            self._in_function = True
            try:
                return call(*args, **kwargs)
            finally:
                self._in_function = False

        hook = classmethod(apply)
        torch.autograd.Function.apply = hook  # type: ignore[method-assign, assignment]
        self._function = hook, original

    def _hook(self, owner: Any) -> None:
        original = owner.__call__

        @functools.wraps(original)
        def call(module: Any, *args: Any, **kwargs: Any) -> Any:
            if not self.looking or is_compiling():
                return original(module, *args, **kwargs)
            return self._observe(functools.partial(original, module), module, args, kwargs)

        self._hooks[owner, "__call__"] = call, vars(owner).get("__call__")
        owner.__call__ = call

    def _hook_clearing(self, owner: Any) -> None:
        original = owner.zero_grad

        @functools.wraps(original)
        def zero_grad(thing: Any, *args: Any, **kwargs: Any) -> Any:
            if self.looking and not is_compiling() and get_ident() == self._thread:
                self._note_clearing(thing)
            return original(thing, *args, **kwargs)

        self._hooks[owner, "zero_grad"] = zero_grad, original
        owner.zero_grad = zero_grad

    def _note_clearing(self, thing: Any) -> None:
        try:
            if isinstance(thing, torch.nn.Module):
                parameters = set(map(id, thing.parameters()))
            else:
                parameters = {id(p) for group in thing.param_groups for p in group["params"]}
            self._clear(parameters)
        except Exception as error:  # then the pass counts
            if raised_by_one(error):
                raise

    def rest(self) -> None:
        """End the inspection and remove its hooks."""
        if not self.looking:
            return
        self.looking = False
        if self._function is not None:
            hook, original = self._function
            if vars(torch.autograd.Function)["apply"] is hook:
                torch.autograd.Function.apply = original  # type: ignore[method-assign]
            self._function = None
        for (owner, name), (call, original) in self._hooks.items():
            if vars(owner).get(name) is not call:
                continue  # other code has wrapped our hook, which now only passes calls on
            if original is None:
                delattr(owner, name)
            else:
                setattr(owner, name, original)
        self._hooks = {}

    def _observe(self, function: Any, module: Any, args: Any, kwargs: Any) -> Any:
        if get_ident() != self._thread:
            return function(*args, **kwargs)
        self._has_call = True
        if not (torch.is_grad_enabled() or self._in_function):
            return self._observe_graphless(function, args, kwargs)
        if type(module).__name__ == "OptimizedModule":
            self._compiled_model = True
        outermost, begin = self._depth == 0, perf_counter()
        self._note(function if module is None else module, module, args, kwargs)
        if outermost and (self._call is None or self._is_state(self._call)):
            self.seconds += perf_counter() - begin
            return self._look_inside(function, args, kwargs)
        self._depth += 1
        self.seconds += perf_counter() - begin
        try:
            result = function(*args, **kwargs)
        finally:
            self._depth -= 1
        if self._depth == 0 and self._call is not None:
            begin = perf_counter()
            self._note_result(self._call, result)
            self._call = None
            self.seconds += perf_counter() - begin
        return result

    def _observe_graphless(self, function: Any, args: Any, kwargs: Any) -> Any:
        if self._in_graphless or len(self._graphless) >= MAX_CALLS:
            return function(*args, **kwargs)
        begin = perf_counter()
        try:
            self._graphless.append(samples_given(_given(args, kwargs)))
        except Exception as error:  # then the call is not counted
            if raised_by_one(error):
                raise
        self.seconds += perf_counter() - begin
        self._in_graphless = True
        try:
            result = function(*args, **kwargs)
        finally:
            self._in_graphless = False
        begin = perf_counter()
        self._note_returned(result)
        self.seconds += perf_counter() - begin
        return result

    def _look_inside(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Make a call that does not count, as it is a solver's or of a module without parameters.
        The modules that it calls may: one may be the model, or take parts of a solver's state.
        """
        around, self._inside_other = self._inside_other, self._inside_other or self._call is None
        self._call = None
        try:
            return function(*args, **kwargs)
        finally:
            self._inside_other = around

    def _is_state(self, call: Call) -> bool:
        """True if a solver calls with one row: its state may hold all samples in one vector."""
        return self._in_function and call.rows == 1

    def _note_result(self, call: Call, result: Any) -> None:
        try:
            call.add_result(result)
            self._note_products(call, result)
            call.unclear |= call.is_words
            if self._in_function:
                call.nodes = None  # no graph is built here, but the function has a node in one
            self._calls.add(call)
        except Exception as error:  # then the batch size is unknown
            if raised_by_one(error):
                raise
        self._note_returned(result)

    def _note_products(self, call: Call, result: Any) -> None:
        """Detect whether the first axis of the model's input is time because its entries attend to
        each other, as in a text given as a vector of numbers.
        """
        outer, second = self._sequence, 1
        if call.rows < 2 or not (call.is_text or outer is not None):
            return
        if outer is not None:
            if outer.shape[0] != call.rows or outer.shape[1] in (1, call.rows):
                return
            second = int(outer.shape[1])
        axes = attended_axes(tensors_returned(result), call.rows, second)
        call.unclear |= axes == {0, 1}
        call.is_words &= not axes
        call.rows = second if axes == {0} else call.rows

    def _note_returned(self, result: Any) -> None:
        """Note the storage of what a call returned; only its identity is kept alive."""
        try:
            if len(self._returned) < MAX_CALLS:
                for tensor in tensors_returned(result):
                    reference = StorageWeakRef(tensor.untyped_storage())
                    self._returned[reference.cdata] = reference
        except Exception as error:  # it has no storage, as under `vmap`
            if raised_by_one(error):
                raise

    def _note_function(self, args: Any) -> None:
        try:
            if self._inside_other:
                return
            inputs = [a for a in args if not isinstance(a, torch.nn.Parameter)]
            inputs = [a for a in inputs if not (isinstance(a, torch.Tensor) and _is_parameter(a))]
            rows = samples_of(inputs)
            self._other_rows = max(self._other_rows, rows if rows > 1 else 0)
        except Exception as error:  # then the batch size is unknown
            if raised_by_one(error):
                raise

    def take(self, roots: Any, gradients: Any = None, place: Any = None) -> Batch:
        """Return the batch of the backward pass from the tensors ``roots``. ``gradients`` are their
        gradients if the caller gives them; ``place`` is the code that begins the pass.
        """
        begin, batch = perf_counter(), Batch()
        try:
            batch = self._calls.take(roots, gradients, self._graphless)
            if not (self._has_call or self._compiles or self._other_rows):
                batch.samples = rows_of_layers(roots)
        except Exception as error:  # then the batch size is unknown
            if raised_by_one(error):
                raise
        self._graphless = []
        batch.place, batch.read_axes, self._read_axes = place, self._read_axes, set()
        batch.read_storages, self._read_storages = self._read_storages, set()
        self.seconds += perf_counter() - begin
        batch.samples = batch.samples or self._other_rows
        self._has_batch = True
        self._other_rows = 0
        self._sequence = None
        return batch

    def note_read(self, batch: Any) -> None:
        """Note the axes and the memory of a batch that a loader yielded."""
        for tensor in tensors_in(batch, DEPTH):
            self._read_axes.update(tensor.shape[:2])
            with suppress(RuntimeError, NotImplementedError):  # it has no storage
                reference = StorageWeakRef(tensor.untyped_storage())
                self._given[reference.cdata] = reference
                self._read_storages.add(reference.cdata)

    def _forget(self) -> None:
        self.seconds = 0.0
        self._read_axes, self._read_storages = set(), set()
        self._calls.forget()
        self._graphless = []
        self._given_before, self._given, self._returned = self._given, {}, {}
        self._call = None
        self._other_rows = 0
        self._sequence = None

    def _note(self, key: Any, module: Any, args: Any, kwargs: Any) -> None:
        try:
            if self._depth == 0:
                self._call = None
                values = _given(args, kwargs)
                rows = samples_given(values)
                if module is not None and next(module.parameters(), None) is None:
                    if not self._inside_other:
                        self._other_rows = max(self._other_rows, rows)
                    return
                tensors = list(tensors_in(values, DEPTH))
                if _is_letter_with_state(tensors):
                    rows = 1
                self._sequence = next((t for t in tensors if t.dim() > 1), None)
                self._in_layer, self._slices = False, {}
                layer_input = self._sequence
                if getattr(module, "batch_first", None) is False and layer_input is not None:
                    rows = int(layer_input.shape[1]) if layer_input.dim() == 3 else rows
                source = _address(tensors[0]) if tensors else 0
                self._call = Call(id(key), rows, _second_axes(values), source)
                inner = [tensor for tensor in tensors if tensor.grad_fn is not None]
                self._call.depends = not all(map(is_of_leaves, inner))
                self._call.passes_back = any(
                    _is_parameter(tensor) and not isinstance(tensor, torch.nn.Parameter)
                    for tensor in tensors
                ) or (bool(inner) and not self._call.depends)
                self._call.is_index = bool(tensors) and not tensors[0].is_floating_point()
                self._call.is_text = self._call.is_index and self._sequence is None
                self._call.is_words = _is_words(module, tensors)
                self._call.lengths = {n for tensor in tensors for n in tensor.shape}
                self._call.first_axes = {n for tensor in tensors for n in tensor.shape[:1]}
                if module is not None:
                    trained = [p for p in module.parameters() if p.requires_grad]
                    self._call.unclear = _is_ensemble(trained, rows)
                    if trained:
                        self._call.parameter = id(trained[0])
                        self._call.width = tuple(trained[0].shape)
                        self._call.since = number_of(trained[0].view(-1))
                self._note_memory(self._call, tensors)
            elif self._call is not None and args:
                self._note_layer(self._call, self._sequence, module, args[0])
        except Exception as error:  # then the batch size is unknown
            if raised_by_one(error):
                raise
            self._sequence = None

    def _note_memory(self, call: Call, tensors: list[torch.Tensor]) -> None:
        """Note the storage of a call's first input, and whether another call made it."""
        with suppress(RuntimeError, NotImplementedError):  # no storage, as under `vmap`
            reference = StorageWeakRef(tensors[0].untyped_storage()) if tensors else None
            if reference is not None:
                call.storage = reference.cdata
                call.content = checksum(tensors[0])
                call.is_made = call.storage in self._returned
                self._given[call.storage] = reference

    def _note_layer(self, call: Call, outer: torch.Tensor | None, module: Any, inner: Any) -> None:
        """Find which of the first two axes of the model's input is the batch axis, from what the
        model passes to a layer. It is usually the first, but time may come before it, or there is
        no batch axis. A model that takes at most a vector and passes rows to its first layer makes
        its own batch.
        """
        if not isinstance(inner, torch.Tensor) or not inner.dim():
            return
        is_leaf = next(module.children(), None) is None
        stated = _stated_rows(module, inner)
        if outer is None:
            if self._in_layer or not (is_leaf or stated):
                return
            if stated is not None:
                rows, steps = stated
                call.is_words = False
                call.rows = rows if call.rows == steps else call.rows
            elif inner.is_floating_point() and (inner.dim() == 1 or _is_row(inner)):
                call.rows, call.is_words = 1, False  # the numbers were one vector
            self._in_layer = inner.is_floating_point()
            call.unclear |= call.rows == 1 < inner.shape[0] and inner.dim() > 1 and stated is None
            return
        first, second = outer.shape[:2]
        is_whole = tuple(inner.shape[:2]) == (first, second)
        if stated is not None:
            rows, steps = stated
            is_step = steps == 1 and rows == second != first
            is_one = rows == 1 and steps == first
            is_transposed = inner.dim() > 2 and tuple(inner.shape[:2]) == (second, first)
            if is_whole or is_step or is_one or is_transposed:
                # Rows that a recurrent layer takes as one sequence may be a batch or one sample.
                if call.rows == first:
                    call.unclear = is_one and not isinstance(module, CONVOLUTIONS)
                    call.rows = rows
                self._sequence, self._in_layer = None, True
                return
        if is_leaf and first > 1 and _is_batch_of_convolution(module, inner, first, second):
            call.rows = second if call.rows == first else call.rows
            self._sequence, self._in_layer = None, True
            return
        # A layer with a weight for each entry of the first axis: it cannot be the batch axis.
        is_moved = inner.shape[-1] == first not in (inner.shape[0], outer.shape[-1])
        call.unclear |= is_leaf and is_moved and inner.numel() == outer.numel()
        is_slice = inner.dim() == max(2, outer.dim() - 1) and inner.shape[0] == second != first
        if is_leaf and is_slice and (outer.dim() > 2 or call.is_index):
            # A loop over the first axis, which is time: as many calls as entries, or one less.
            self._slices[id(module)] = calls = self._slices.get(id(module), 0) + 1
            if call.rows == first <= calls + 1 and calls > 1:
                call.rows, call.unclear = int(second), False
                return
        if is_leaf and not self._in_layer and inner.dim() > 1:
            # Both axes are merged into one: frames of several episodes, with either axis first.
            self._in_layer = True
            merges = inner.shape[0] == first * second > max(first, second)
            call.unclear |= merges and call.rows == first and outer.dim() > 2


def _given(args: Any, kwargs: Any) -> list[Any]:
    """The arguments of a call; arrays of NumPy as tensors over the same memory."""
    values = [*args, *kwargs.values()]
    numpy: Any = sys.modules.get("numpy")
    for index, value in enumerate(values if numpy is not None else ()):
        # PyTorch warns if an array is read-only, and knows numbers only.
        if isinstance(value, numpy.ndarray) and value.flags.writeable and value.dtype.kind in "fiu":
            with suppress(TypeError, ValueError):  # a type of number, or strides, that it lacks
                values[index] = torch.from_numpy(value)
    return values


def _is_words(module: Any, tensors: list[torch.Tensor]) -> bool:
    """Whether a model's only input is a vector of whole numbers. A single layer looks rows up."""
    is_vector = len(tensors) == 1 and is_integer_vector(tensors[0])
    return is_vector and len(tensors[0]) > 1 and _has_layers(module)


def _has_layers(module: Any) -> bool:
    return module is not None and next(module.children(), None) is not None


def _is_row(inner: torch.Tensor) -> bool:
    return inner.dim() == 2 and inner.shape[0] == 1


def _is_ensemble(parameters: list[torch.nn.Parameter], rows: int) -> bool:
    """Whether a module holds the parameters of several models, as many as its input has ``rows``:
    then each row is a batch of its own.
    """
    several = any(parameter.dim() > 2 for parameter in parameters)
    return several and all(parameter.shape[:1] == (rows,) for parameter in parameters)


def _stated_rows(module: Any, inner: torch.Tensor) -> tuple[int, int] | None:
    """Samples in the input of a layer that declares its batch axis, and the length of the other of
    the first two axes; None for other layers. An input without a batch axis is one sample.
    """
    if not inner.is_floating_point():
        return None
    batch_first = getattr(module, "batch_first", None)
    if isinstance(batch_first, bool) and inner.dim() == 3:
        rows, steps = inner.shape[:2] if batch_first else inner.shape[1::-1]
        return int(rows), int(steps)
    axes = len(module.kernel_size) + 1 if isinstance(module, CONVOLUTIONS) else 0
    is_one = inner.dim() == (2 if isinstance(batch_first, bool) else axes)
    return (1, int(inner.shape[0])) if is_one else None


def _is_batch_of_convolution(module: Any, inner: torch.Tensor, first: int, second: int) -> bool:
    """Whether a convolution's samples lie along the second axis of the model's input, and its first
    axis is among the others.
    """
    if not isinstance(module, CONVOLUTIONS) or inner.dim() != len(module.kernel_size) + 2:
        return False
    return inner.shape[0] == second != first and first in inner.shape[1:]


def _is_letter_with_state(tensors: list[torch.Tensor]) -> bool:
    """True for a number without axes (such as a letter's) with the state of several layers."""
    if not tensors or tensors[0].dim() or tensors[0].is_floating_point():
        return False
    return all(tensor.dim() < 2 or 1 in tensor.shape[:2] for tensor in tensors)


def _requires_grad(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _is_parameter(value: torch.Tensor) -> bool:
    return value.requires_grad and value.is_leaf


def _address(value: torch.Tensor) -> int:
    """Address of ``value`` in memory; its identity if it has no storage, as under `vmap`."""
    try:
        return value.data_ptr()
    except RuntimeError:
        return id(value)


def _within_graph(args: Any) -> bool:
    """True if an argument is the result of a graph, as when a larger, eager model is calling."""
    return any(isinstance(value, torch.Tensor) and value.grad_fn is not None for value in args)


def _second_axes(values: Any) -> set[int]:
    """Lengths of second axes that may be batch axes, which excludes features of a table."""
    return {
        int(value.shape[1])
        for value in values
        if isinstance(value, torch.Tensor)
        and (value.dim() > 2 or (value.dim() == 2 and not value.is_floating_point()))
    }


def _with_call_methods(owner: Any) -> set[Any]:
    """Subclasses of ``owner``, at any depth, that define ``__call__``, as GPyTorch's models do."""
    kinds = set()
    for kind in type.__subclasses__(owner):
        if "__call__" in vars(kind):
            kinds.add(kind)
        kinds |= _with_call_methods(kind)
    return kinds


def _has_compiled() -> bool:
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)
    return bool(counters and counters["frames"])


def _compiled_module() -> Any:
    """The class of compiled modules."""
    from torch._dynamo.eval_frame import OptimizedModule  # noqa: PLC0415 - heavy; already loaded

    return OptimizedModule
