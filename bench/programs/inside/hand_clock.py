"""Manual clock for a copy of a program, independent of the timing plugin.

Call ``step(samples)`` after each optimizer step, and ``pause()`` when an evaluation starts, since
it belongs to no iteration; ``resume()`` at its end if what follows belongs to the next step. Ends
the program after enough steps; at exit, writes intervals and samples to the folder in
``HAND_CLOCK``.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
import time
from pathlib import Path

MAX_STEPS = int(os.environ.get("HAND_CLOCK_STEPS", "60"))
MAX_SECONDS = float(os.environ.get("HAND_CLOCK_SECONDS", "20"))
_intervals: list[tuple[float, float]] = []
_last: float | None = None
_began: float | None = None
_steps = 0
_parameters = ""


def step(samples: float) -> None:
    """Record the end of a step on ``samples``."""
    global _last, _began, _steps, _parameters  # noqa: PLW0603 - a clock for a process
    now = time.perf_counter()
    _steps += 1
    if _last is not None and _steps > 3:
        _intervals.append((now - _last, samples))
    _began = _began or now
    if _steps >= MAX_STEPS or now - _began > MAX_SECONDS:
        if "parameters" in sys.modules:
            _parameters = sys.modules["parameters"].digest()
        if threading.current_thread() is not threading.main_thread():
            _write()
            os._exit(0)  # an exception would end only this thread
        raise SystemExit(0)
    _last = time.perf_counter()


def pause() -> None:
    """Exclude the time until the next step."""
    global _last  # noqa: PLW0603
    _last = None


def resume() -> None:
    """Include the time from here on, where what follows an evaluation belongs to the training."""
    global _last  # noqa: PLW0603
    _last = time.perf_counter()


@atexit.register
def _write() -> None:
    folder = os.environ.get("HAND_CLOCK")
    if folder and _intervals:
        path = Path(folder, f"{os.getpid()}.json")
        clock = {"steps": _steps, "intervals": _intervals, "parameters": _parameters}
        path.write_text(json.dumps(clock))
