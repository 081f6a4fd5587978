"""Times iterations with a second clock, the GPU's, whose results arrive later."""

from __future__ import annotations

from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    from hops_profiler.timing.counts import Counts

    class Device(Protocol):
        """The GPU's clock: takes a mark at the end of each phase and returns the times later.

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
    """Times iterations with ``device``, if there is one, and adds its times to the counts.

    A loop may run far ahead of its GPU: at first, its speed is that of queueing work. If the device
    times every iteration (``exact``), an iteration is counted as timed once the GPU has finished
    it, and with the GPU's time.
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
        """Begin an iteration; the device times it if one is due."""
        if self._device is not None:
            self._device.begin()
            self.read(counts)

    def read(self, counts: Counts) -> None:
        """Add the iterations that the device has finished since the last call to ``counts``."""
        if self._device is None:
            return
        for took, seconds in self._device.read():
            counts.add_on_device(seconds)
            if self._device.exact:
                if took is not None and self._previous is not None:
                    counts.time(took, *self._previous)
                self._previous = self._queue.popleft()

    def skip(self, iterations: int) -> None:
        """Note that ``iterations`` iterations ended which the device did not time."""
        if self._device is not None:
            self._device.end_iteration(keep=True, iterations=iterations)

    def end(self, iteration: Iteration, *, regular: bool) -> bool:
        """End an iteration, whose time counts only if it is ``regular``.

        Returns True if the device's time is the one to use. Iterations for which the device has no
        room are not timed at all.
        """
        exact = self._device is not None and self._device.exact and self.marking
        if self._device is not None and self._device.end_iteration(keep=regular) and exact:
            self._queue.append(iteration)
        return exact

    def ignore_pending(self) -> None:
        """Discard the device's times of all iterations that have ended so far."""
        self._queue, self._previous = deque([None] * len(self._queue)), None
