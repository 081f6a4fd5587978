"""The gate at which a training waits for its turn, between two iterations."""

from __future__ import annotations

from collections.abc import Callable

from hops_profiler.timing.events import EventQueue


class StepGate:
    """Calls ``gate`` with how many iterations optimizers' steps have ended since the last call. It
    returns after how many it is to be called again: at that iteration's end and not later, maybe
    before. Steps within a backward pass, or another's closure, end later.
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
        """Call the gate if an iteration has ended. The queue holds at most as many further steps as
        the gate lets pass, as each may end an iteration.

        Another thread may have flushed the step that ended it: ranks meet at the gate.
        """
        events = self._events
        steps, events.steps_left = (
            events.steps_left,
            0,
        )  # remains if the gate raises
        if events.iterations and not events.recorder.in_phase:
            iterations, events.iterations, self._allowance = events.iterations, 0, 1
            self._allowance = gate(iterations)
        events.steps_left = min(steps, self._allowance - events.iterations)
