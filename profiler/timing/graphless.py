"""Distinguishes evaluations from rollouts: both run a model in blocks that build no graph.

Training cannot begin before the first rollout, but it can begin before the first evaluation.
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
from hops_profiler.timing.regular import FREQUENT

EARLY_ITERATIONS = 8
"""Blocks in these first iterations belong to training, which was not seen to work without them."""

MIN_SHARE = 1 / 64
"""Blocks shorter than this share of an iteration are ignored (updates of a moving average)."""

MAX_BLOCKS = 256

_MANY_TIMES = -1
"""Replaces the iteration of blocks that ran in two of the first iterations. They are too frequent
to be evaluations, even if one takes long while other processes have the CPU."""

DECORATOR = "_contextlib.py"
"""PyTorch file that enters the block around functions decorated with `torch.no_grad()`."""


def attach(begin: Callable[[FrameType], None], add: Callable[[float, FrameType], None]) -> None:
    """Call ``begin`` before each block under `no_grad` or `inference_mode`, and ``add`` after it
    with its duration in seconds and the frame in which it ends.
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
    """Tracks a training's blocks under `no_grad` and `inference_mode`, by place in the code."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Forget all blocks, for another training."""
        self._early_places: dict[Any, int] = {}  # by place: the iteration, or _MANY_TIMES
        self._late_places: set[Any] = set()
        self._iteration: Any = None
        self._early_seconds = self._later_seconds = 0.0

    def add(
        self, counts: Counts, steps_left: int, took: float, frame: FrameType
    ) -> tuple[Any] | None:
        """Note a block of ``took`` seconds that ends in ``frame``. ``counts`` are updated only
        every few steps; ``steps_left`` remain until the next update.

        Returns None until this iteration's blocks have taken longer than a regular iteration. Then
        returns a tuple of one item: this block's place if the blocks that the first iterations did
        not have took that long alone, else None; or FREQUENT if this block took that long, but two
        of the first iterations had it.
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
            return (FREQUENT,) if took > mean else None
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
        """Whether the code in ``frame`` has had a long block that the first iterations did not
        have.
        """
        return bool(self._late_places) and _code(_place(frame)) in self._late_places

    def _add_early(self, place: Any, iteration: int) -> None:
        if self._early_places.setdefault(place, iteration) != iteration:
            self._early_places[place] = _MANY_TIMES


def _place(frame: FrameType) -> Any:
    """The code of a decorated function; for any other block its code and the offset in it."""
    code = frame.f_code
    if code.co_filename.endswith(DECORATOR):
        function = frame.f_locals.get("func")
        return getattr(function, "__code__", code)
    return code, frame.f_lasti


def _code(place: Any) -> Any:
    return place[0] if isinstance(place, tuple) else place
