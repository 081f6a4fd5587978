"""Events that hooks have seen, until the recorder processes several of them together."""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock
from typing import Any

from hops_profiler.timing.handlers import is_below
from hops_profiler.timing.recorder import REGULAR_BEGINS, Recorder

MAX_EVENTS = 2000
"""Methods and arguments; more are flushed wherever the loop is: an evaluation has no steps."""


class EventQueue:
    """Events for ``recorder``, in ``events``: its methods and their arguments in turn. Tuples of
    the two would keep the garbage collector busy.

    A hook only appends, which is cheap; the recorder's code, no longer in the processor's caches,
    would be three times as slow in each iteration. ``immediate``: hooks are to flush each event.
    Otherwise the queue is to be flushed after ``steps_left`` steps or at the time ``due``.
    ``iterations``: how many optimizers' steps have ended since the gate was called. ``fail`` gets
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
        # A save in another thread, or in a signal's handler, may ask for the counts in the middle.
        # A handler may also raise anywhere: before Python 3.10 even `with` may keep the lock then.
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
        """Drop all events; further ones are for ``recorder``. ``in_child``: of a forked process."""
        if in_child:
            self._lock = RLock()  # another thread may have held it
        else:
            self.flush()  # the gate counts these
        with self._lock:
            self.events.clear()
            self.recorder, self.immediate = recorder, True
