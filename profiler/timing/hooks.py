"""Where PyTorch is listened to: batches, backward passes, optimizer steps.

Every hook lets PyTorch do its work with the very arguments it got, and reads a clock before
and after. Whatever goes wrong in a hook of ours switches the profiler off, never training.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from threading import get_ident
from time import perf_counter
from typing import Any

import torch
from hops_profiler.timing.batch import samples_of
from hops_profiler.timing.recorder import Recorder
from torch.optim import optimizer as optim
from torch.utils.data import dataloader

# True while torch.compile traces our hooks into the user's graph: there they must vanish, since a
# clock cannot be compiled and fullgraph=True would refuse the user's code. Absent before 2.3.
compiling: Callable[[], bool] = getattr(torch.compiler, "is_compiling", lambda: False)


class Hooks:
    """Feeds ``recorder``; calls ``iterated`` after each iteration.

    ``failure`` says why it stopped listening. ``params`` counts what the optimizers train.
    Only the thread that trains is timed; a batch that another one fetches for it counts.
    """

    def __init__(self, recorder: Recorder, iterated: Callable[[], None]) -> None:
        self.recorder = recorder
        self.failure = ""
        self.off = False
        self._iterated = iterated
        self._thread: int | None = None
        self._loader: weakref.ref[Any] | None = None
        self._trained: dict[int, int] = {}

    @property
    def params(self) -> int:
        return sum(self._trained.values())

    def attach(self) -> None:
        """Listen from now on, to the end of the process."""
        self._wrap(dataloader._BaseDataLoaderIter, "__next__", "data", self._fetched)
        self._wrap(torch.autograd, "backward", "backward")
        optim.register_optimizer_step_pre_hook(self._step_begins)
        optim.register_optimizer_step_post_hook(self._step_ends)

    def _wrap(
        self,
        owner: Any,
        name: str,
        phase: str,
        done: Callable[[Any, Any], None] | None = None,
    ) -> None:
        """Time ``owner.name`` as ``phase``; give its first argument and result to ``done``."""
        original = getattr(owner, name)

        @functools.wraps(original)
        def timed(*args: Any, **kwargs: Any) -> Any:
            elsewhere = self._thread is not None and self._thread != get_ident()
            if self.off or compiling() or (elsewhere and done is None):
                return original(*args, **kwargs)
            if elsewhere:
                result = original(*args, **kwargs)
            else:
                self._guard(self._enter, phase)
                try:
                    result = original(*args, **kwargs)
                finally:
                    self._guard(self._leave)
            if done is not None:
                self._guard(done, args[0], result)
            return result

        setattr(owner, name, timed)

    def _guard(self, note: Callable[..., None], *args: Any) -> None:
        if self.off:
            return
        try:
            note(*args)
        except Exception as error:
            self.off, self.failure = True, f"{note.__name__}: {error!r}"[:500]

    def _enter(self, phase: str) -> None:
        self.recorder.enter(phase, perf_counter())

    def _leave(self) -> None:
        if self.recorder.leave(perf_counter()):
            self._iterated()

    def _fetched(self, loader: Any, batch: Any) -> None:
        new = self._loader is None or self._loader() is not loader
        if new:
            self._loader = weakref.ref(loader)
        if self.recorder.fetched(samples_of(batch), new_source=new):
            self._iterated()

    def _step_begins(self, *_: Any) -> None:
        if not compiling():
            self._guard(self._enter, "update")

    def _step_ends(self, optimizer: Any, *_: Any) -> None:
        if not compiling():
            self._guard(self._note_step, optimizer)

    def _note_step(self, optimizer: Any) -> None:
        now = perf_counter()
        key = id(optimizer)
        self._thread = self._thread or get_ident()
        self.recorder.leave(now)
        if key not in self._trained and len(self._trained) < 1024:
            self._trained[key] = _params(optimizer)
        if self.recorder.stepped(key, now):
            self._iterated()


def _params(optimizer: Any) -> int:
    return sum(p.numel() for group in optimizer.param_groups for p in group["params"])
