"""Signals' handlers of the program: they run, and may raise, in the middle of anything of ours."""

from __future__ import annotations

import inspect
import sys
from types import CodeType, FrameType, TracebackType
from typing import Any


def raised_by_one(error: BaseException) -> bool:
    """Whether a handler raised ``error``: Python calls it with the frame that it interrupts."""
    interrupted: FrameType | None = None
    trace = error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        if interrupted is not None and _is_given(frame, interrupted):
            return True
        interrupted, trace = frame, trace.tb_next
    return False


class SuppressErrors:
    """Suppresses what the program's own objects raise, but not what a handler does."""

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        return isinstance(error, Exception) and not raised_by_one(error)


def _is_given(frame: FrameType, interrupted: FrameType) -> bool:
    names, several, _, values = inspect.getargvalues(frame)
    given = [values.get(name) for name in names]
    given += values.get(several, ()) if several else ()
    return any(value is interrupted for value in given)


def is_below(*functions: Any) -> bool:
    """Whether the caller was called, by way of others, from within one of ``functions``, which may
    include itself: a handler has interrupted it.
    """
    codes = [function.__code__ for function in functions]
    frame = sys._getframe(1).f_back
    while frame is not None and frame.f_code not in codes:
        frame = frame.f_back
    return frame is not None


def calls(code: CodeType) -> int:
    """How many calls of it this thread is in, not counting the caller's own."""
    frame, found = sys._getframe(1).f_back, 0
    while frame is not None:
        found += frame.f_code is code
        frame = frame.f_back
    return found
