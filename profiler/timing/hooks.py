"""Hooks into PyTorch: batches, backward passes, optimizer steps.

Every hook calls PyTorch with the same arguments, and reads a clock before and after. An error
in a hook of ours switches the profiler off and never affects training.
"""

from __future__ import annotations

import functools
import weakref
from collections import deque
from collections.abc import Callable
from threading import get_ident
from time import perf_counter
from typing import Any

import torch
from hops_profiler.timing.batch import samples_of
from hops_profiler.timing.inputs import Inputs, compiling
from hops_profiler.timing.layout import sharing
from hops_profiler.timing.recorder import UNSEEN, Recorder
from torch.optim import optimizer as optim
from torch.utils.data import dataloader

LOOKS = (1, 2)
"""Iterations after which the forward passes' inputs are inspected; those are not timed."""

LOOK_AGAIN = 23
"""Every how many iterations the input is inspected again if no loader shows the batch: a prime
number, as rollouts and the like come after round ones."""

MOST_OPTIMIZERS = 1024

MOST_AHEAD = 4096
"""Batches that a loader's workers are asked for ahead of the loop."""


class Hooks:
    """Feeds ``recorder``; calls ``iterated`` after each iteration, or after several short ones.

    ``failure`` says why it stopped. ``params`` counts the parameters that the optimizers train,
    ``optimizers`` those that were created, ``sharing`` the ranks that train on the same batch. Only
    the training thread is timed; a batch that another thread fetches for it counts. ``gate``, if
    any, is called after an iteration that an optimizer's step ended, outside of backward passes.
    """

    def __init__(self, recorder: Recorder, iterated: Callable[[], None]) -> None:
        self.recorder = recorder
        self.failure = ""
        self.off = False
        self.optimizers = 0
        self.sharing = 1
        self.gate: Callable[[], None] | None = None
        self._iterated = iterated
        self._inputs = Inputs()
        self._thread: int | None = None
        self._stepping: int | None = None
        self._trained: dict[int, int] = {}
        self._reading: Callable[[], Any] = _nothing

    @property
    def params(self) -> int:
        return sum(self._trained.values())

    @property
    def reading(self) -> tuple[int, int] | None:
        """Batches that the loader last read from has given, and has in all, in its present pass."""
        loader = self._reading()
        try:
            return loader._num_yielded, len(loader)
        except Exception:  # gone, or of unknown length, or the program's sampler raises
            return None

    def attach(self) -> None:
        """Install the hooks, until the end of the process."""
        self._attach_loader()
        self._attach_backward()
        self._attach_modes()
        self._inputs.attach()
        optim.register_optimizer_step_pre_hook(self._step_begins)
        optim.register_optimizer_step_post_hook(self._step_ends)

    def begin_anew(self, recorder: Recorder) -> None:
        """Forget everything so far: a measured block begins, or a forked process."""
        self._inputs.rest()
        self.recorder = recorder
        self._thread = self._stepping = None
        self._trained, self.sharing, self._reading = {}, 1, _nothing
        self.off = bool(self.failure)

    def _fail(self, error: Exception) -> None:
        self._inputs.rest()
        self.off, self.failure = True, repr(error)[:500]

    def _attach_loader(self) -> None:
        """Hook into loaders: batches, and how many samples the loader put into each."""
        kind: Any = dataloader._BaseDataLoaderIter
        fetch, next_index, reset = kind.__next__, kind._next_index, kind._reset

        @functools.wraps(fetch)
        def timed(loader: Any) -> Any:
            if self.off:
                return fetch(loader)
            if self._thread is not None and self._thread != get_ident():
                batch = fetch(loader)
            else:
                self._enter("data")
                try:
                    batch = fetch(loader)
                finally:
                    self._leave()
            if loader is not self._reading():
                self._reading = weakref.ref(loader)
            try:
                sizes = loader.__dict__.get("_hops_sizes")
                if self.recorder.fetched((sizes and sizes.popleft()) or samples_of(batch)):
                    self._iterated()
            except Exception as error:
                self._fail(error)
            return batch

        @functools.wraps(next_index)
        def counted(loader: Any) -> Any:
            index = next_index(loader)
            try:
                size = len(index) if loader._auto_collation else 0
                sizes = loader.__dict__.get("_hops_sizes")
                if sizes is None:
                    sizes = loader.__dict__["_hops_sizes"] = deque(maxlen=MOST_AHEAD)
                sizes.append(size)
            except Exception as error:
                self._fail(error)
            return index

        @functools.wraps(reset)
        def forgotten(loader: Any, *args: Any, **kwargs: Any) -> Any:
            loader.__dict__.pop("_hops_sizes", None)
            return reset(loader, *args, **kwargs)

        kind.__next__, kind._next_index, kind._reset = timed, counted, forgotten

    def _attach_backward(self) -> None:
        original = torch.autograd.backward

        @functools.wraps(original)
        def backward(*args: Any, **kwargs: Any) -> Any:
            if self.off or compiling() or self._elsewhere():
                return original(*args, **kwargs)
            if self._inputs.looking:
                self.recorder.given(self._inputs.take())
            self._enter("backward")
            try:
                return original(*args, **kwargs)
            finally:
                self._leave()

        torch.autograd.backward = backward

    def _attach_modes(self) -> None:
        """Hook into the calls that begin a training or an evaluation."""
        evaluate, make = torch.nn.Module.eval, optim.Optimizer.__init__

        @functools.wraps(evaluate)
        def evaluated(module: Any) -> Any:
            if not compiling():
                self.recorder.evaluates()
            return evaluate(module)

        @functools.wraps(make)
        def made(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            make(optimizer, *args, **kwargs)
            self.optimizers += 1

        torch.nn.Module.eval = evaluated  # type: ignore[method-assign, assignment]
        optim.Optimizer.__init__ = made  # type: ignore[method-assign, assignment]

    def _elsewhere(self) -> bool:
        """True in another thread than the one that trains."""
        return self._thread is not None and self._thread != get_ident()

    def _enter(self, phase: str) -> None:
        try:
            self.recorder.enter(phase, perf_counter())
        except Exception as error:
            self._fail(error)

    def _leave(self) -> None:
        try:
            if self.recorder.leave(perf_counter()):
                self._thread = self._thread or get_ident()
                self._end_iteration()
        except Exception as error:
            self._fail(error)

    def _step_begins(self, optimizer: Any, *_: Any) -> None:
        if self.off or compiling() or self._elsewhere():
            return
        self._stepping = id(optimizer)
        try:
            self.recorder.enter("update", perf_counter())
        except Exception as error:
            self._fail(error)

    def _step_ends(self, optimizer: Any, *_: Any) -> None:
        if self.off or compiling() or self._elsewhere():
            return
        ended = False
        try:
            now, recorder = perf_counter(), self.recorder
            recorder.leave(now)
            key = id(optimizer)
            if self._stepping != key:
                return  # its base class's step, which it calls, has already counted it
            self._stepping = None
            if key not in self._trained and len(self._trained) < MOST_OPTIMIZERS:
                self._thread = self._thread or get_ident()
                self._trained[key] = _params(optimizer)
                self.sharing = max(self.sharing, sharing(optimizer))
            if recorder.stepped(key, now):
                ended = True
                # Where batches are read there is nothing to look at after the first iterations.
                if recorder.judged or not recorder.reads or self._inputs.looking:
                    self._end_iteration()
        except Exception as error:
            self._fail(error)
        if ended and self.gate is not None and not self.recorder.within:
            self.gate()

    def _end_iteration(self) -> None:
        recorder = self.recorder
        done = recorder.iterations
        look = done in LOOKS
        if not recorder.reads:
            look = look or done == UNSEEN or done % LOOK_AGAIN == 0
        if look != self._inputs.looking:
            if look:
                self._inputs.look(again=done > UNSEEN)
            else:
                self._inputs.rest()
        if recorder.judged:
            self._iterated()


def _nothing() -> None:
    """Stands for a loader that is gone."""


def _params(optimizer: Any) -> int:
    return sum(p.numel() for group in optimizer.param_groups for p in group["params"])
