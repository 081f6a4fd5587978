"""Ranks on one GPU compute one after the other: only one has intermediates in memory at a time.

As Hare runs the tasks of a round. A rank has its turn from the first layer of its forward pass
until its backward pass has computed all gradients; it waits for their sum outside of it. On a GPU
it has computed them, and given back what they took where memory is short, before the next begins.
Results do not depend on it, so nobody waits for ever: where a rank waits for others within its
turn, as for SyncBatchNorm, those that wait for the turn give up after a while, and compute side by
side: in that pass, as it may be one that compiles, and for good the second time, unless many turns
came in between.
"""

from __future__ import annotations

import fcntl
import functools
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

import torch
from hops_profiler.timing.device import usable
from hops_profiler.timing.inputs import compiling
from torch.autograd import Variable
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook

PATIENCE_SECONDS = 20.0
"""How long to wait at least for the rank that has its turn; else four times a turn of one's own."""

MOST_IN_VAIN = 2
"""Passes for which a rank has waited in vain before it waits no more."""

FORGIVEN = 100
"""Turns in a row after which they are forgotten. Of ranks that wait for each other in each pass
only one has its turn: the others are past their second long before."""

_LOOK_SECONDS = 0.001

_NONE = -1
"""PyTorch's number of a backward pass outside of any. One within another, of a checkpoint's segment
for example, is a part of its turn."""


class Turnstile:
    """Made before the ranks are forked. If one dies the kernel gives back its turn (fcntl(2)).

    ``tight``: a rank gives back what it holds on a GPU beside its state before the next computes.
    """

    def __init__(self) -> None:
        self.tight = True
        self._file = os.memfd_create("hops-turnstile")
        self._inside = self._without = False
        self._in_vain = self._had = 0
        self._longest, self._since = 0.0, 0.0

    def attach(self) -> None:
        """Have this rank pass through it with each forward and backward pass."""
        register_module_forward_pre_hook(self._before_layer)
        register_optimizer_step_post_hook(self._after_step)
        original = torch.autograd.backward

        @functools.wraps(original)
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            if isinstance(tensors, Iterator):
                tensors = tuple(tensors)  # it is not to lose its first one
            root = tensors[0] if isinstance(tensors, (list, tuple)) and tensors else tensors
            if torch._C._current_graph_task_id() != _NONE:
                return original(tensors, *args, **kwargs)
            handle = None
            if self._inside and isinstance(root, torch.Tensor) and root.requires_grad:
                handle = root.register_hook(self._begins)  # type: ignore[no-untyped-call]
            try:
                return original(tensors, *args, **kwargs)
            finally:
                if handle is not None:
                    handle.remove()
                self.leave()

        torch.autograd.backward = backward

    def leave(self) -> None:
        """Let the next rank in."""
        self._without = False
        if not self._inside:
            return
        try:
            if usable():  # not while a graph is captured
                torch.cuda.synchronize()  # what it computes is only queued so far
                if self.tight:
                    torch.cuda.empty_cache()
        finally:
            self._inside = False
            self._longest = max(self._longest, time.monotonic() - self._since)
            os.pwrite(self._file, os.urandom(8), 0)
            fcntl.lockf(self._file, fcntl.LOCK_UN)

    def _before_layer(self, module: Any, _: Any) -> None:
        """DistributedDataParallel sends its buffers before it calls the first layer."""
        if self._inside or self._without or self._in_vain >= MOST_IN_VAIN:
            return
        if not module.training or not torch.is_grad_enabled():
            return
        if not isinstance(module, torch.nn.parallel.DistributedDataParallel):
            self._enter()

    def _after_step(self, *_: Any) -> None:
        """A turn ends also if no backward pass came after the forward pass."""
        if not compiling() and torch._C._current_graph_task_id() == _NONE:
            self.leave()

    def _enter(self) -> None:
        patience = max(PATIENCE_SECONDS, 4 * self._longest)
        until, turn = time.monotonic() + patience, os.pread(self._file, 8, 0)
        while not self._is_free():
            if turn != (turn := os.pread(self._file, 8, 0)):  # another's turn has ended meanwhile
                until = time.monotonic() + patience
            if time.monotonic() > until:
                self._without, self._in_vain, self._had = True, self._in_vain + 1, 0
                how_long = "from now on" if self._in_vain >= MOST_IN_VAIN else "in this pass"
                sys.stderr.write(f"hops-lane: a rank waits in its turn: side by side {how_long}\n")
                return
            time.sleep(_LOOK_SECONDS)
        self._inside, self._since = True, time.monotonic()
        self._had += 1
        if self._had == FORGIVEN:
            self._in_vain = 0

    def _is_free(self) -> bool:
        """It is this rank's then."""
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _begins(self, _: torch.Tensor) -> None:
        """The first of backward's callbacks: that in which DDP waits for sums comes after it."""
        Variable._execution_engine.queue_callback(self.leave)
