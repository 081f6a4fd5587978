"""Lets ranks on one GPU compute one after the other, so that only one has intermediates at a time.

This is how Hare runs the tasks of a round. A rank's turn lasts from the first layer of its forward
pass until its backward pass has computed all gradients; it waits for their sum outside of its turn.
On a GPU, the next turn begins only when the gradients are there and, if memory is short, the
intermediates' memory is free. Results do not depend on turns, so no rank waits forever: if a rank
waits for the others within its turn, as for SyncBatchNorm, those give up after a while and compute
side by side, the first time only in that pass, which may be one that compiles, and from the second
time on always, unless many turns came in between.
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
from hops_profiler.timing.inputs import is_compiling
from torch.autograd import Variable
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook

PATIENCE_SECONDS = 20.0
"""How long to wait for another rank's turn: at least this, and four times one's own longest
turn."""

MAX_TIMEOUTS = 2
"""Number of passes in which a rank waits too long before it stops waiting."""

TURNS_TO_FORGET = 100
"""Turns in a row after which timeouts are forgotten. If ranks wait for each other in each pass,
only one has turns, and the others reach their second timeout long before."""

_LOOK_SECONDS = 0.001

_OUTSIDE = -1
"""PyTorch's number of the current backward pass if there is none. A backward pass within another,
as of a checkpointed segment, is part of its turn."""


class Turnstile:
    """Created before the ranks are forked. If one dies, the kernel ends its turn (fcntl(2)).

    With ``tight``, a rank frees the GPU memory that its state does not need at the end of its turn.
    """

    def __init__(self) -> None:
        self.tight = True
        self._file = os.memfd_create("hops-turnstile")
        self._inside = False
        self._side_by_side = False  # in this pass
        self._timeouts = self._turns = 0
        self._longest, self._begin = 0.0, 0.0

    def attach(self) -> None:
        """Let this rank take turns for its forward and backward passes."""
        register_module_forward_pre_hook(self._before_layer)
        register_optimizer_step_post_hook(self._after_step)
        original = torch.autograd.backward

        @functools.wraps(original)
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            if isinstance(tensors, Iterator):
                tensors = tuple(tensors)  # the first one is read here
            root = tensors[0] if isinstance(tensors, (list, tuple)) and tensors else tensors
            if torch._C._current_graph_task_id() != _OUTSIDE:
                return original(tensors, *args, **kwargs)
            handle = None
            if self._inside and isinstance(root, torch.Tensor) and root.requires_grad:
                handle = root.register_hook(self._end_turn_with_pass)  # type: ignore[no-untyped-call]
            try:
                return original(tensors, *args, **kwargs)
            finally:
                if handle is not None:
                    handle.remove()
                self.leave()

        torch.autograd.backward = backward

    def leave(self) -> None:
        """End the turn, so that the next rank may enter."""
        self._side_by_side = False
        if not self._inside:
            return
        try:
            if usable():  # not while a CUDA graph is captured
                torch.cuda.synchronize()  # its computations are only queued so far
                if self.tight:
                    torch.cuda.empty_cache()
        finally:
            self._inside = False
            self._longest = max(self._longest, time.monotonic() - self._begin)
            os.pwrite(self._file, os.urandom(8), 0)
            fcntl.lockf(self._file, fcntl.LOCK_UN)

    def _before_layer(self, module: Any, _: Any) -> None:
        """Enter at the first layer, before which DistributedDataParallel sends its buffers."""
        if self._inside or self._side_by_side or self._timeouts >= MAX_TIMEOUTS:
            return
        if not module.training or not torch.is_grad_enabled():
            return
        if not isinstance(module, torch.nn.parallel.DistributedDataParallel):
            self._enter()

    def _after_step(self, *_: Any) -> None:
        """End a turn in which no backward pass followed the forward pass."""
        if not is_compiling() and torch._C._current_graph_task_id() == _OUTSIDE:
            self.leave()

    def _enter(self) -> None:
        patience = max(PATIENCE_SECONDS, 4 * self._longest)
        deadline, turn = time.monotonic() + patience, os.pread(self._file, 8, 0)
        while not self._is_free():
            if turn != (turn := os.pread(self._file, 8, 0)):  # another turn has ended since
                deadline = time.monotonic() + patience
            if time.monotonic() > deadline:
                self._side_by_side, self._timeouts, self._turns = True, self._timeouts + 1, 0
                scope = "from now on" if self._timeouts >= MAX_TIMEOUTS else "in this pass"
                sys.stderr.write(f"hops-lane: a rank waits in its turn: side by side {scope}\n")
                return
            time.sleep(_LOOK_SECONDS)
        self._inside, self._begin = True, time.monotonic()
        self._turns += 1
        if self._turns == TURNS_TO_FORGET:
            self._timeouts = 0

    def _is_free(self) -> bool:
        """Take the turn if no rank has it; return whether this rank has it now."""
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _end_turn_with_pass(self, _: torch.Tensor) -> None:
        """Leave in the backward pass's first callback, as DDP waits for sums in a later one."""
        Variable._execution_engine.queue_callback(self.leave)
