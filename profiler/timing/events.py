"""Queues the events that hooks see until the recorder processes several of them together."""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock
from typing import Any

from hops_profiler.timing.handlers import is_below
from hops_profiler.timing.recorder import REGULAR_BEGINS, Recorder

MAX_EVENTS = 2000
"""Maximum number of entries (methods and arguments). More are flushed at any point of the loop, as
an evaluation has no steps."""


class EventQueue:
    """Queue of events for ``recorder``. ``events`` alternates between the recorder's methods and
    their arguments; tuples of the two would keep the garbage collector busy.

    A hook only appends, which is cheap: the recorder's code, evicted from the CPU's caches, would
    be three times as slow if it ran in each iteration. If ``immediate``, hooks flush every event.
    Otherwise they flush the queue after ``steps_left`` steps or at the time ``due``. ``iterations``
    counts those that optimizer steps ended since the gate was called. ``fail`` is called with
    errors of the recorder.
    """

    def __init__(self, recorder: Recorder, fail: Callable[[Exception], None]) -> None:
        self.recorder = recorder
        self.events: list[Any] = []
        self.extend = self.events.extend
        self.immediate = True
        self.steps_left, self.due = 0, 0.0
        self.iterations = 0
        self._fail = fail
        self._lock: Any = RLock()

    def flush(self) -> bool:
        """Have the recorder process all events. True if the last one ended an iteration."""
        events, recorder, ends_iteration, position = self.events, self.recorder, False, 0
        lock = self._lock
        # A save in another thread or a signal handler may ask for the counts during a flush. A
        # handler may also raise anywhere; before Python 3.10, even `with` may then keep the lock.
        if lock._is_owned():
            if is_below(EventQueue.flush, EventQueue.restart):
                return False
            while lock._is_owned():
                lock.release()
        with lock:
            try:
                while position < len(events):
                    if events[position] in REGULAR_BEGINS:
                        before = recorder.counts.iterations
                        length = recorder.consume_regular_iterations(events, position)
                        if length:
                            self.iterations += recorder.counts.iterations - before
                            position += length
                            ends_iteration = True
                            continue
                    method, argument = events[position], events[position + 1]
                    position += 2
                    ends_iteration = method(recorder, argument)
                    if ends_iteration and method is Recorder.step:
                        self.iterations += 1
            except Exception as error:
                self._fail(error)
            finally:
                del events[:position]
        return ends_iteration

    def restart(self, recorder: Recorder, *, in_child: bool) -> None:
        """Drop all events and send further ones to ``recorder``; ``in_child`` after a fork."""
        if in_child:
            self._lock = RLock()  # another thread may have held it
        else:
            self.flush()  # the gate counts these
        with self._lock:
            self.events.clear()
            self.recorder, self.immediate = recorder, True
