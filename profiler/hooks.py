"""Where PyTorch is listened to: batches, backward passes, optimizer steps.

Every hook lets PyTorch do its work with the very arguments it got, and reads a clock before
and after. Whatever goes wrong in a hook of ours switches the profiler off, never training.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from time import perf_counter
from typing import Any

import torch
from hops_profiler.batch import samples_of
from hops_profiler.recorder import Recorder
from torch.optim import optimizer as optim
from torch.utils.data import dataloader


class Hooks:
    """Feeds ``recorder``; calls ``iterated`` after each iteration.

    ``failure`` says why it stopped listening.
    """

    def __init__(self, recorder: Recorder, iterated: Callable[[], None]) -> None:
        self.recorder = recorder
        self.failure = ""
        self.off = False
        self._iterated = iterated
        self._depth = 0

    def attach(self) -> None:
        self._wrap(dataloader._BaseDataLoaderIter, "__next__", self._fetched)
        self._wrap(torch.autograd, "backward", self._backward)
        optim.register_optimizer_step_pre_hook(self._step_begins)
        optim.register_optimizer_step_post_hook(self._step_ends)

    def _wrap(self, owner: Any, name: str, note: Callable[[float, Any], None]) -> None:
        """Call ``note(begin, result)`` after each outermost ``owner.name``."""
        original = getattr(owner, name)

        @functools.wraps(original)
        def timed(*args: Any, **kwargs: Any) -> Any:
            if self.off or self._depth:
                return original(*args, **kwargs)
            self._depth = 1
            begin = perf_counter()
            try:
                result = original(*args, **kwargs)
            finally:
                self._depth = 0
            self._guard(note, begin, result)
            return result

        setattr(owner, name, timed)

    def _guard(self, note: Callable[..., None], *args: Any) -> None:
        try:
            note(*args)
        except Exception as error:
            self.off, self.failure = True, f"{note.__name__}: {error!r}"

    def _fetched(self, begin: float, batch: Any) -> None:
        self.recorder.fetched(begin, perf_counter(), samples_of(batch))

    def _backward(self, begin: float, _: None) -> None:
        self.recorder.backward(begin, perf_counter())

    def _step_begins(self, *_: Any) -> None:
        if not self.off:
            self._guard(self._note_step_begins)

    def _step_ends(self, optimizer: Any, *_: Any) -> None:
        if not self.off:
            self._guard(self._note_step, optimizer)

    def _note_step_begins(self) -> None:
        self.recorder.step_begins(perf_counter())

    def _note_step(self, optimizer: Any) -> None:
        if self.recorder.step_ends(id(optimizer), perf_counter()):
            self._iterated()
