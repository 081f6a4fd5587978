"""Clocks that are put into a copy of a program by hand: they know nothing of the timing plugin.

``step(samples)`` after each step of the optimizer; ``pause()`` where an evaluation begins, whose
time is no iteration's. Ends the program when it has seen enough. Intervals and samples are written
when it ends, to the folder ``HAND_CLOCK``.
"""

from __future__ import annotations

import atexit
import json
import os
import threading
import time
from pathlib import Path

MOST_STEPS = int(os.environ.get("HAND_CLOCK_STEPS", "60"))
MOST_SECONDS = float(os.environ.get("HAND_CLOCK_SECONDS", "20"))
_intervals: list[tuple[float, float]] = []
_last: float | None = None
_began: float | None = None
_steps = 0


def step(samples: float) -> None:
    """A step on ``samples`` has ended."""
    global _last, _began, _steps  # noqa: PLW0603 - a clock for a process
    now = time.perf_counter()
    _steps += 1
    if _last is not None and _steps > 3:
        _intervals.append((now - _last, samples))
    _began = _began or now
    if _steps >= MOST_STEPS or now - _began > MOST_SECONDS:
        if threading.current_thread() is not threading.main_thread():
            _write()
            os._exit(0)  # an exception would end this thread alone
        raise SystemExit(0)
    _last = time.perf_counter()


def pause() -> None:
    """What follows is not training."""
    global _last  # noqa: PLW0603
    _last = None


@atexit.register
def _write() -> None:
    folder = os.environ.get("HAND_CLOCK")
    if folder and _intervals:
        path = Path(folder, f"{os.getpid()}.json")
        path.write_text(json.dumps({"steps": _steps, "intervals": _intervals}))
