"""Distinguishes evaluations from rollouts: both run a model in blocks that build no graph.

A training cannot begin before its first rollout, but it can before its first evaluation.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from time import perf_counter
from types import FrameType
from typing import Any

import torch
from hops_profiler.timing.counts import Counts
from hops_profiler.timing.inputs import is_compiling

EARLY_ITERATIONS = 8
"""First iterations, whose blocks belong to the training: it was not seen to do without them."""

MIN_SHARE = 1 / 64
"""Blocks below this share of an iteration are ignored, such as the update of a moving average."""

MAX_BLOCKS = 256

_MANY_TIMES = -1
"""Stands for the iteration of blocks that were in two of the first ones: they come too often to be
evaluations, however long one takes while other processes have the processor."""

DECORATOR = "_contextlib.py"
"""File of PyTorch's that enters the block around functions decorated with `torch.no_grad()`."""


def attach(begin: Callable[[FrameType], None], add: Callable[[float, FrameType], None]) -> None:
    """Have ``add`` called after each block under `no_grad` or `inference_mode`, with its seconds
    and the frame that it ends in, and ``begin`` before it.
    """
    for kind in (torch.no_grad, torch.inference_mode):
        _attach(kind, begin, add)


def _attach(
    kind: Any, begin: Callable[[FrameType], None], add: Callable[[float, FrameType], None]
) -> None:
    enter, exit_ = kind.__enter__, kind.__exit__

    @functools.wraps(enter)
    def time_enter(block: Any) -> Any:
        if not is_compiling():
            begin(sys._getframe(1))
            block._hops_begin = perf_counter()
        return enter(block)

    @functools.wraps(exit_)
    def time_exit(block: Any, *error: Any) -> Any:
        result = exit_(block, *error)
        if not is_compiling():
            add(perf_counter() - getattr(block, "_hops_begin", float("inf")), sys._getframe(1))
        return result

    kind.__enter__, kind.__exit__ = time_enter, time_exit


class GraphlessBlocks:
    """Blocks under `no_grad` and `inference_mode` in a training, by the code that they are in."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin with another training."""
        self._early_places: dict[Any, int] = {}  # by place: the iteration, or _OFTEN
        self._late_places: set[Any] = set()
        self._iteration: Any = None
        self._early_seconds = self._later_seconds = 0.0

    def add(
        self, counts: Counts, steps_left: int, took: float, frame: FrameType
    ) -> tuple[Any] | None:
        """Note a block that ``took`` so many seconds and ends in ``frame``. ``counts`` are behind;
        ``steps_left`` until they are renewed.

        Returns None until the blocks of this iteration have together taken longer than a regular
        iteration; then the place of this one if those alone did so that the first iterations did
        not have, or None as the place.
        """
        if counts.iterations < EARLY_ITERATIONS and len(self._early_places) < MAX_BLOCKS:
            self._add_early(_place(frame), counts.iterations)
        mean = counts.iteration.mean
        if not mean or took < mean * MIN_SHARE:
            return None
        iteration = counts.iterations, steps_left
        if iteration != self._iteration:
            self._iteration = iteration
            self._early_seconds = self._later_seconds = 0.0
        place = _place(frame)
        first = self._early_places.get(place)
        if first == _MANY_TIMES:
            return None
        if first is None:
            self._later_seconds += took
        else:
            self._early_seconds = max(self._early_seconds, took)
        if max(self._early_seconds, self._later_seconds) <= mean:
            return None
        if self._later_seconds <= mean:
            return (None,)
        if len(self._late_places) < MAX_BLOCKS:
            self._late_places.add(_code(place))
        return (place,)

    def is_late(self, frame: FrameType) -> bool:
        """Whether a block of the code in ``frame`` has taken long, which the first iterations did
        not have.
        """
        return bool(self._late_places) and _code(_place(frame)) in self._late_places

    def _add_early(self, place: Any, iteration: int) -> None:
        if self._early_places.setdefault(place, iteration) != iteration:
            self._early_places[place] = _MANY_TIMES


def _place(frame: FrameType) -> Any:
    """The code of a decorated function, or of the block: its function and the place in it."""
    code = frame.f_code
    if code.co_filename.endswith(DECORATOR):
        function = frame.f_locals.get("func")
        return getattr(function, "__code__", code)
    return code, frame.f_lasti


def _code(place: Any) -> Any:
    return place[0] if isinstance(place, tuple) else place
