"""Divides the time of an iteration into phases."""

from __future__ import annotations

from hops_profiler.timing.counts import PHASES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hops_profiler.timing.device_times import Device

MAX_DEPTH = 8
"""Maximum nesting depth; deeper phases stem from steps whose exceptions no hook saw."""

_ZEROS = dict.fromkeys(PHASES, 0.0)


class PhaseClock:
    """Measures the seconds of each phase since the iteration began, and marks the ``device``.

    Phases may be nested; time belongs to the innermost one. ``open`` lists the current phases from
    the outermost to the innermost. ``boundary`` is the time when a phase last began or ended.
    """

    def __init__(self, device: Device | None = None) -> None:
        self._device = device
        self.open: list[str] = []
        self.boundary = 0.0
        self.seconds = _ZEROS.copy()

    def begin(self, phase: str, previous: str, now: float) -> None:
        """Begin ``phase``; the time up to ``now`` belongs to ``previous``."""
        if len(self.open) > MAX_DEPTH:
            self.open.clear()
        self.seconds[previous] += now - self.boundary
        self.boundary = now
        if self._device is not None and self._device.marks:
            self._device.mark(previous)
        self.open.append(phase)

    def end(self, now: float) -> str:
        """End the innermost phase, and return it; "" if none is open."""
        if not self.open:
            return ""
        phase = self.open.pop()
        self.seconds[phase] += now - self.boundary
        self.boundary = now
        if self._device is not None and self._device.marks:
            self._device.mark(phase)
        return phase

    def innermost(self, default: str) -> str:
        return self.open[-1] if self.open else default

    def restart(self) -> None:
        """Begin an iteration at the last boundary."""
        self.seconds = _ZEROS.copy()
