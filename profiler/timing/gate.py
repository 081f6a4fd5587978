"""The gate at which a training waits for its turn, between two iterations."""

from __future__ import annotations

from collections.abc import Callable

from hops_profiler.timing.events import EventQueue


class StepGate:
    """Calls ``gate`` with the number of iterations that optimizer steps ended since the last call.
    The gate returns the number of iterations after which it must be called again at the latest; it
    may be called earlier. Steps within a backward pass or another step's closure end later.
    """

    def __init__(self, events: EventQueue) -> None:
        self.gate: Callable[[int], int] | None = None
        self._events = events
        self._allowance = 0  # iterations that may end before the next call

    def open(self, gate: Callable[[int], int]) -> None:
        self.gate = gate
        self._events.immediate = True
        self._events.iterations, self._allowance = 0, 1

    def visit(self, gate: Callable[[int], int]) -> None:
        """Call the gate if an iteration has ended. The queue then holds at most as many steps as
        the gate allows, since each step may end an iteration.

        The step that ended the iteration may have been flushed by another thread. It still counts
        here, because all ranks meet at the gate.
        """
        events = self._events
        steps, events.steps_left = (
            events.steps_left,
            0,
        )  # stays 0 if the gate raises
        if events.iterations and not events.recorder.in_phase:
            iterations, events.iterations, self._allowance = events.iterations, 0, 1
            self._allowance = gate(iterations)
        events.steps_left = min(steps, self._allowance - events.iterations)
