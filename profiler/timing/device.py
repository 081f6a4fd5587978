"""Times phases by the GPU's clock: records events and reads them once the GPU has passed them."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable
from typing import Any

import torch
from hops_profiler.timing.counts import PHASES

MAX_PENDING = 64
"""Maximum number of timed iterations that the GPU has not finished; others are not timed."""

MAX_MARKS = 4096
"""Maximum number of marks in an iteration, so that a loop that never steps cannot fill memory."""


def usable() -> bool:
    """True while the process uses a CUDA GPU that can record events."""
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return False
    return not torch.cuda.is_current_stream_capturing()


class CudaClock:
    """Times phases on the loop's current stream in about one of ``interval`` iterations; with an
    interval of 1 (``exact``), also the iterations themselves.

    Never waits for the GPU: an event is read once ``query`` says that it has passed. Records
    nothing before CUDA is in use or while a graph is captured, which forbids it. ``marks`` has the
    phases of the current iteration and the events at their ends; it is empty if the iteration is
    not timed.
    """

    def __init__(
        self,
        interval: int = 1,
        new_event: Callable[[], Any] | None = None,
        usable: Callable[[], bool] = usable,
    ) -> None:
        self._interval = interval
        self.exact = interval == 1
        self._new_event = new_event or functools.partial(torch.cuda.Event, enable_timing=True)
        self._usable = usable
        self._iterations_to_skip = 0  # until one is timed
        self._free: list[Any] = []
        self.marks: list[tuple[str, Any]] = []
        self._pending: deque[tuple[bool, list[tuple[str, Any]]]] = deque()
        self._follows = False  # the next iteration begins at the end of the last pending one
        self._last_begin: Any = None  # event at the beginning of the iteration read last

    def mark(self, phase: str) -> None:
        """Mark the end of ``phase`` in the stream."""
        if self.marks:
            self._record(phase)

    def end_iteration(self, *, keep: bool, iterations: int = 1) -> bool:
        """End an iteration at the last mark, or several iterations without marks. True if
        :meth:`read` will return the iteration.
        """
        marks, self.marks = self.marks, []
        keep = keep and len(marks) > 1 and len(self._pending) < MAX_PENDING
        if keep:
            self._pending.append((self._follows, marks))
            self._iterations_to_skip = self._interval
        else:
            self._drop(marks)
        self._follows = keep and self.exact
        self._iterations_to_skip = max(0, self._iterations_to_skip - iterations)
        return keep

    def begin(self) -> None:
        """Begin an iteration, and mark it if one is due."""
        if not self._iterations_to_skip:
            self._record("")

    def read(self) -> list[tuple[float | None, dict[str, float]]]:
        """Return the iterations that the GPU has finished since the last call: for each, the
        seconds from the beginning of the previous one to its own (None if that was not timed), and
        the seconds by phase.
        """
        times = []
        while self._pending and self._pending[0][1][-1][1].query():
            follows, marks = self._pending.popleft()
            begin = marks[0][1]
            took = self._last_begin.elapsed_time(begin) / 1e3 if follows else None
            seconds = dict.fromkeys(PHASES, 0.0)
            for (_, start), (phase, end) in zip(marks, marks[1:]):  # noqa: B905, RUF007 - Python 3.8
                seconds[phase] += start.elapsed_time(end) / 1e3
            times.append((took, seconds))
            self._drop(marks[1:])
            if self._last_begin is not None:
                self._free.append(self._last_begin)
            self._last_begin = begin
        return times

    def _record(self, phase: str) -> None:
        if len(self.marks) >= MAX_MARKS or not self._usable():
            self._drop(self.marks)
            self.marks = []
            return
        event = self._free.pop() if self._free else self._new_event()
        event.record()
        self.marks.append((phase, event))

    def _drop(self, marks: list[tuple[str, Any]]) -> None:
        self._free.extend(event for _, event in marks)
