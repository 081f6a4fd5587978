"""Times of iterations by a second clock, the GPU's, which are known only later."""

from __future__ import annotations

from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    from hops_profiler.timing.counts import Counts

    class Device(Protocol):
        """The GPU's clock: gets the end of each phase now, has the times later.

        See :class:`hops_profiler.timing.device.CudaClock`.
        """

        exact: bool
        marks: list[Any]

        def mark(self, phase: str) -> None: ...
        def end_iteration(self, *, keep: bool, iterations: int = 1) -> bool: ...
        def begin(self) -> None: ...
        def read(self) -> list[tuple[float | None, dict[str, float]]]: ...

    Iteration = tuple[dict[str, float], float, float]
    """Seconds by phase, samples and batches."""


class DeviceTimes:
    """Has ``device``, if any, time iterations, and adds its times to the counts.

    A loop may be far ahead of its GPU, at first as fast as it can queue work. Where the device
    times each iteration (``exact``), an iteration counts as timed once the GPU has done it, with
    the GPU's time.
    """

    def __init__(self, device: Device | None) -> None:
        self._device = device
        self._queue: deque[Iteration | None] = deque()
        self._previous: Iteration | None = None

    @property
    def marking(self) -> bool:
        """True while the device times the current iteration."""
        return self._device is not None and bool(self._device.marks)

    def begin(self, counts: Counts) -> None:
        """An iteration begins now: time it if it is due."""
        if self._device is not None:
            self._device.begin()
            self.read(counts)

    def read(self, counts: Counts) -> None:
        """Add to ``counts`` what the device has done since the last call."""
        if self._device is None:
            return
        for took, seconds in self._device.read():
            counts.add_on_device(seconds)
            if self._device.exact:
                if took is not None and self._previous is not None:
                    counts.time(took, *self._previous)
                self._previous = self._queue.popleft()

    def skip(self, iterations: int) -> None:
        """So many iterations have ended that the device did not time."""
        if self._device is not None:
            self._device.end_iteration(keep=True, iterations=iterations)

    def end(self, iteration: Iteration, *, regular: bool) -> bool:
        """An iteration has ended, which counts only if it was a ``regular`` one.

        True if the device's time is the one that counts. Nothing is known of iterations for which
        the device has no room.
        """
        exact = self._device is not None and self._device.exact and self.marking
        if self._device is not None and self._device.end_iteration(keep=regular) and exact:
            self._queue.append(iteration)
        return exact

    def ignore_pending(self) -> None:
        """Count no iteration that has ended so far."""
        self._queue, self._previous = deque([None] * len(self._queue)), None
