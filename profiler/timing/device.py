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
    few more; of iterations, too, where all are timed (``exact``).

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
        self.exact = every == 1
        self._new_event = new_event or functools.partial(torch.cuda.Event, enable_timing=True)
        self._usable = usable
        self._resting = 0
        self._free: list[Any] = []
        self.marks: list[tuple[str, Any]] = []  # of the present iteration; empty: it is not timed
        self._pending: deque[tuple[bool, list[tuple[str, Any]]]] = deque()
        self._follows = False  # the next iteration begins where the last of those pending has ended
        self._begun: Any = None  # the beginning of the iteration that was read last

    def mark(self, phase: str) -> None:
        """Mark the end of ``phase`` in the stream."""
        if self.marks:
            self._record(phase)

    def cut(self, *, keep: bool, iterations: int = 1) -> bool:
        """End an iteration at the last mark, or several that had none. True if :meth:`read` will
        have it.
        """
        done, self.marks = self.marks, []
        kept = keep and len(done) > 1 and len(self._pending) < MOST_PENDING
        if kept:
            self._pending.append((self._follows, done))
            self._resting = self._every
        else:
            self._drop(done)
        self._follows = kept and self.exact
        self._resting = max(0, self._resting - iterations)
        return kept

    def begin(self) -> None:
        """An iteration begins now."""
        if not self._resting:
            self._record("")

    def read(self) -> list[tuple[float | None, dict[str, float]]]:
        """Of each iteration that the GPU has finished since the last call: seconds from the
        beginning of the one before to its own, None if none came right before, and by phase.
        """
        finished = []
        while self._pending and self._pending[0][1][-1][1].query():
            follows, marks = self._pending.popleft()
            began = marks[0][1]
            before = self._begun.elapsed_time(began) / 1e3 if follows else None
            seconds = dict.fromkeys(PHASES, 0.0)
            for (_, begin), (phase, end) in zip(marks, marks[1:]):  # noqa: B905, RUF007 - Python 3.8
                seconds[phase] += begin.elapsed_time(end) / 1e3
            finished.append((before, seconds))
            self._drop(marks[1:])
            if self._begun is not None:
                self._free.append(self._begun)
            self._begun = began
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
