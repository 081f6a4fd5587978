"""Divides the time of an iteration into phases."""

from __future__ import annotations

from hops_profiler.timing.counts import PHASES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hops_profiler.timing.device_times import Device

MAX_DEPTH = 8
"""Nesting depth of phases; deeper ones are steps ended by an exception that no hook saw."""

_ZEROS = dict.fromkeys(PHASES, 0.0)


class PhaseClock:
    """Seconds of each phase since the iteration began, and the same marks on the ``device``.

    Phases may lie in each other: time belongs to the innermost. ``open``: the phases that last now,
    the innermost last. ``boundary``: when a phase last began or ended.
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
        """End the innermost phase, and return it; "" if none lasts."""
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
