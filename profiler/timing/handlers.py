"""Handles the program's signal handlers, which may run, and raise, anywhere in our code."""

from __future__ import annotations

import inspect
import sys
from types import CodeType, FrameType, TracebackType
from typing import Any


def raised_by_one(error: BaseException) -> bool:
    """Whether a signal handler raised ``error``. Python calls it with the interrupted frame."""
    caller: FrameType | None = None
    trace = error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        if caller is not None and _has_argument(frame, caller):
            return True
        caller, trace = frame, trace.tb_next
    return False


class SuppressErrors:
    """Suppresses errors that the program's objects raise, but not those of its signal handlers."""

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        return isinstance(error, Exception) and not raised_by_one(error)


def _has_argument(frame: FrameType, value: FrameType) -> bool:
    """Whether the function of ``frame`` was called with ``value`` as an argument."""
    names, star, _, variables = inspect.getargvalues(frame)
    arguments = [variables.get(name) for name in names]
    arguments += variables.get(star, ()) if star else ()
    return any(argument is value for argument in arguments)


def is_below(*functions: Any) -> bool:
    """Whether one of ``functions``, which may include the caller, is below the caller on the stack,
    that is, a signal handler has interrupted it.
    """
    codes = [function.__code__ for function in functions]
    frame = sys._getframe(1).f_back
    while frame is not None and frame.f_code not in codes:
        frame = frame.f_back
    return frame is not None


def calls(code: CodeType) -> int:
    """Number of calls of ``code`` on this thread's stack, not counting the caller itself."""
    frame, count = sys._getframe(1).f_back, 0
    while frame is not None:
        count += frame.f_code is code
        frame = frame.f_back
    return count
