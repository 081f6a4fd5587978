"""The GPU's own clock: events recorded now and read long after they have passed."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable
from typing import Any

import torch
from hops_profiler.timing.counts import PHASES

MOST_PENDING = 64
"""Iterations whose events have not passed yet; a loop that runs further ahead loses the rest."""

MOST_MARKS = 4096
"""Marks in one iteration; a loop that never steps must not fill the memory."""


def usable() -> bool:
    """True while the process works on a CUDA GPU that can record events."""
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return False
    return not torch.cuda.is_current_stream_capturing()


class CudaClock:
    """Times of the phases on the stream that the loop works on, of each ``every``-th iteration or a
    few more.

    Nothing here waits for the GPU: an event is read once ``query`` says that it has passed.
    Before CUDA is in use, and while a graph is captured (which forbids it), nothing is marked.
    """

    def __init__(
        self,
        every: int = 1,
        new_event: Callable[[], Any] | None = None,
        usable: Callable[[], bool] = usable,
    ) -> None:
        self._every = every
        self._new_event = new_event or functools.partial(torch.cuda.Event, enable_timing=True)
        self._usable = usable
        self._resting = 0
        self._free: list[Any] = []
        self.marks: list[tuple[str, Any]] = []  # of the present iteration; empty: it is not timed
        self._pending: deque[list[tuple[str, Any]]] = deque()

    def mark(self, phase: str) -> None:
        """Mark the end of ``phase`` in the stream."""
        if self.marks:
            self._record(phase)

    def cut(self, *, keep: bool, iterations: int = 1) -> None:
        """End an iteration at the last mark, or several that had none."""
        done, self.marks = self.marks, []
        if keep and len(done) > 1 and len(self._pending) < MOST_PENDING:
            self._pending.append(done)
            self._resting = self._every
        else:
            self._drop(done)
        self._resting = max(0, self._resting - iterations)

    def begin(self) -> None:
        """An iteration begins now."""
        if not self._resting:
            self._record("")

    def read(self) -> list[dict[str, float]]:
        """Seconds by phase of the iterations that the GPU has finished since the last call."""
        finished = []
        while self._pending and self._pending[0][-1][1].query():
            marks = self._pending.popleft()
            seconds = dict.fromkeys(PHASES, 0.0)
            for (_, begin), (phase, end) in zip(marks, marks[1:]):  # noqa: B905, RUF007 - Python 3.8
                seconds[phase] += begin.elapsed_time(end) / 1e3
            finished.append(seconds)
            self._drop(marks)
        return finished

    def _record(self, phase: str) -> None:
        if len(self.marks) >= MOST_MARKS or not self._usable():
            self._drop(self.marks)
            self.marks = []
            return
        event = self._free.pop() if self._free else self._new_event()
        event.record()
        self.marks.append((phase, event))

    def _drop(self, marks: list[tuple[str, Any]]) -> None:
        self._free.extend(event for _, event in marks)
