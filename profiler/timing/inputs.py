"""Inspects the inputs of forward passes, only in some iterations: all would slow them down."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from threading import get_ident
from time import perf_counter
from types import FunctionType
from typing import Any

import torch
from hops_profiler.timing.batch import samples_given, samples_of
from hops_profiler.timing.handlers import raised_by_one
from hops_profiler.timing.passes import DEPTH, Batch, Call, Calls, tensors_in

# True while torch.compile traces our hooks into the user's graph: there they must vanish, since a
# clock cannot be compiled and fullgraph=True would refuse the user's code. Absent before 2.3.
compiling: Callable[[], bool] = getattr(torch.compiler, "is_compiling", lambda: False)


class Inputs:
    """Inspects calls of modules, only while ``looking``, which has taken ``seconds``.

    The outermost module calls count whose outputs are in the graph of a backward pass: those of
    evaluations, rollouts and teachers are not. Modules without parameters, such as a loss over all
    words of all texts, count where nothing else does.

    A custom autograd function's forward pass runs without a graph of its own, but leads to a
    backward pass: modules called in it count, and else what the function is given.

    If something is compiled, only calls of compiled objects are inspected at first: a module's own
    call may be under torch.compile there, which would compile ours. If none of them begins a
    graph, the compiled functions are helpers of an eager model, and the next look is at modules.
    """

    def __init__(self) -> None:
        self.looking = False
        self.seconds = 0.0
        self._compiles = False
        self._compiled_model = False
        self._passed = False
        self._owners: list[Any] = []
        self._called: dict[Any, tuple[Any, Any]] = {}
        self._thread = 0
        self._depth = 0
        self._calls = Calls()
        self._call: Call | None = None  # the outermost one that is under way
        self._without = 0
        self._in_function = False
        self._function: Any = None
        self._sequence: torch.Tensor | None = (
            None  # its input, until it is seen which axis is which
        )
        self._entered = False  # the outermost call has called a layer

    def attach(self) -> None:
        """Hook into compiled functions, which call no module that could be hooked."""
        compile_ = torch.compile

        @functools.wraps(compile_)
        def compiled(*args: Any, **kwargs: Any) -> Any:
            self.rest()
            self._note_compiled()
            result = compile_(*args, **kwargs)
            given = args[0] if args else kwargs.get("model")
            if not isinstance(result, FunctionType) or given is None:
                return result  # a module, or a decorator that compiles later

            @functools.wraps(result)
            def seen(*args: Any, **kwargs: Any) -> Any:
                if not self.looking or compiling():
                    return result(*args, **kwargs)
                if torch.is_grad_enabled() and not _within_graph(args):
                    self._compiled_model = True
                return self._observe(result, None, args, kwargs)

            return seen

        torch.compile = compiled

    def look(self, *, again: bool = False) -> None:
        """Begin anew, in this thread. ``again``: no new classes of modules are looked for."""
        if self.looking and not self.hidden:
            self._forget()
            return
        self.rest()
        if not self._compiles and _has_compiled():
            self._note_compiled()
        helpers = self._passed and not self._compiled_model
        if self._compiles and not helpers:
            self._owners = [_compiled_module()]
        elif not again or self._compiles:
            self._owners = [torch.nn.Module, *_with_own_calls(torch.nn.Module)]
        if not self._compiles:
            self._hook_functions()
        self._thread, self._depth = get_ident(), 0
        self._forget()
        for owner in self._owners:
            self._hook(owner)
        self.looking = True

    def _note_compiled(self) -> None:
        """What was compiled may be the model, whatever was trained before."""
        self._compiles = True
        self._passed = False

    @property
    def hidden(self) -> bool:
        """True if this look is at compiled objects, and none of them began a graph."""
        modules = torch.nn.Module in self._owners
        return self._compiles and self._passed and not (self._compiled_model or modules)

    def _hook_functions(self) -> None:
        """Hook into `torch.autograd.Function.apply`."""
        original = vars(torch.autograd.Function)["apply"]

        @functools.wraps(torch.autograd.Function.apply)
        def apply(kind: Any, *args: Any, **kwargs: Any) -> Any:
            call = original.__get__(None, kind)  # a class method; since PyTorch 2.14 one of C
            if not self.looking or compiling() or get_ident() != self._thread:
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

        hooked = classmethod(apply)
        torch.autograd.Function.apply = hooked  # type: ignore[method-assign, assignment]
        self._function = hooked, original

    def _hook(self, owner: Any) -> None:
        original = owner.__call__

        @functools.wraps(original)
        def called(module: Any, *args: Any, **kwargs: Any) -> Any:
            if not self.looking or compiling():
                return original(module, *args, **kwargs)
            return self._observe(functools.partial(original, module), module, args, kwargs)

        self._called[owner] = called, vars(owner).get("__call__")
        owner.__call__ = called

    def rest(self) -> None:
        """End; nothing of it is left."""
        if not self.looking:
            return
        self.looking = False
        if self._function is not None:
            hooked, original = self._function
            if vars(torch.autograd.Function)["apply"] is hooked:
                torch.autograd.Function.apply = original  # type: ignore[method-assign]
            self._function = None
        for owner, (called, original) in self._called.items():
            if vars(owner).get("__call__") is not called:
                continue  # other code has wrapped ours, which now only passes calls on
            if original is None:
                del owner.__call__
            else:
                owner.__call__ = original
        self._called = {}

    def _observe(self, function: Any, module: Any, args: Any, kwargs: Any) -> Any:
        builds = torch.is_grad_enabled() or self._in_function
        if get_ident() != self._thread or not builds:
            return function(*args, **kwargs)
        if type(module).__name__ == "OptimizedModule":
            self._compiled_model = True
        outermost, began = self._depth == 0, perf_counter()
        self._note(function if module is None else module, module, args, kwargs)
        if outermost and self._call is not None and self._is_state(self._call):
            self._call = None
            return function(*args, **kwargs)  # what it calls may be given the state's parts
        self._depth += 1
        self.seconds += perf_counter() - began
        try:
            result = function(*args, **kwargs)
        finally:
            self._depth -= 1
        if self._depth == 0 and self._call is not None:
            began = perf_counter()
            self._note_result(self._call, result)
            self._call = None
            self.seconds += perf_counter() - began
        return result

    def _is_state(self, call: Call) -> bool:
        """True of a solver's call: its state may be all samples in one vector."""
        return self._in_function and call.rows == 1

    def _note_result(self, call: Call, result: Any) -> None:
        try:
            call.returned(result)
            if self._in_function:
                call.nodes = None  # no graph is built there, but the function has one
            self._calls.add(call)
        except Exception as error:  # then the batch size is unknown
            if raised_by_one(error):
                raise

    def _note_function(self, args: Any) -> None:
        try:
            given = [a for a in args if not isinstance(a, torch.nn.Parameter)]
            given = [a for a in given if not (isinstance(a, torch.Tensor) and _is_parameter(a))]
            rows = samples_of(given)
            self._without = max(self._without, rows if rows > 1 else 0)
        except Exception as error:  # then the batch size is unknown
            if raised_by_one(error):
                raise

    def take(self, roots: Any) -> Batch:
        """What the backward pass from the tensors ``roots`` is over."""
        began = perf_counter()
        batch = self._calls.take(roots)
        self.seconds += perf_counter() - began
        batch.samples = batch.samples or self._without
        self._passed = True
        self._without = 0
        self._sequence = None
        return batch

    def _forget(self) -> None:
        self.seconds = 0.0
        self._calls.forget()
        self._call = None
        self._without = 0
        self._sequence = None

    def _note(self, key: Any, module: Any, args: Any, kwargs: Any) -> None:
        try:
            if self._depth == 0:
                self._call = None
                values = [*args, *kwargs.values()]
                rows = samples_given(values)
                if module is not None and next(module.parameters(), None) is None:
                    self._without = max(self._without, rows)
                    return
                tensors = tensors_in(values, DEPTH)
                self._sequence = next((t for t in tensors if t.dim() > 1), None)
                self._entered = False
                self._call = Call(id(key), rows, _second_axes(values))
            elif self._call is not None and args:
                self._note_layer(self._call, self._sequence, module, args[0])
        except Exception as error:  # then the batch size is unknown
            if raised_by_one(error):
                raise
            self._sequence = None

    def _note_layer(self, call: Call, outer: torch.Tensor | None, module: Any, inner: Any) -> None:
        """See from what the model gives to a layer which of its own input's first two axes is the
        batch's: it usually is the first, but time may come before it. A model that was given a
        vector at most, and gives rows to its first layer, has made a batch of its own.
        """
        if not isinstance(inner, torch.Tensor) or inner.dim() < 2:
            return
        if outer is None:
            if not self._entered and next(module.children(), None) is None:
                self._entered = True
                call.unclear = call.rows == 1 < inner.shape[0]
            return
        first, second = outer.shape[:2]
        batch_first = getattr(module, "batch_first", None)
        if batch_first is False and inner.dim() == 3 and call.rows == first:
            whole = tuple(inner.shape[:2]) == (first, second)
            a_step = inner.shape[0] == 1 and inner.shape[1] == second
            if whole or (a_step and first != second):
                call.rows, call.unclear = int(second), False
                self._sequence, self._entered = None, True
        elif batch_first is True and tuple(inner.shape[:2]) == (first, second):
            call.unclear = False
            self._sequence, self._entered = None, True
        elif not self._entered and next(module.children(), None) is None:
            # Both axes in one, at once: frames of several episodes, either axis first.
            self._entered = True
            merged = inner.shape[0] == first * second > max(first, second)
            call.unclear = merged and call.rows == first and outer.dim() > 2


def _requires_grad(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _is_parameter(value: torch.Tensor) -> bool:
    return value.requires_grad and value.is_leaf


def _within_graph(args: Any) -> bool:
    """True where a tensor comes out of a graph: a larger, eager model calls."""
    return any(isinstance(value, torch.Tensor) and value.grad_fn is not None for value in args)


def _second_axes(values: Any) -> set[int]:
    """Lengths of second axes that may be the batch's; not features of a table."""
    return {
        int(value.shape[1])
        for value in values
        if isinstance(value, torch.Tensor)
        and (value.dim() > 2 or (value.dim() == 2 and not value.is_floating_point()))
    }


def _with_own_calls(owner: Any) -> set[Any]:
    """Its subclasses, at any depth, that are called in their own way, as GPyTorch's models."""
    found = set()
    for kind in type.__subclasses__(owner):
        if "__call__" in vars(kind):
            found.add(kind)
        found |= _with_own_calls(kind)
    return found


def _has_compiled() -> bool:
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)
    return bool(counters and counters["frames"])


def _compiled_module() -> Any:
    """The class of compiled modules."""
    from torch._dynamo.eval_frame import OptimizedModule  # noqa: PLC0415 - heavy; there already

    return OptimizedModule
