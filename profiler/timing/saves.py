"""Notes when the training saves something: a kill loses what it did since, and a save under way."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import torch


def listen(begin: Callable[[], None], end: Callable[[], None]) -> None:
    """Have ``begin`` called before each `torch.save`, whose behaviour does not change, and ``end``
    after it.
    """
    original = torch.save

    @functools.wraps(original)
    def save(*args: Any, **kwargs: Any) -> None:
        begin()
        original(*args, **kwargs)
        end()

    # Under both its names: a function is pickled by that of the module that it says it is from.
    torch.save = torch.serialization.save = save


class SaveLog:
    """``iterations``: those in the last save, None before it. ``is_open``: a save may be of several
    files, so it lasts until training goes on. ``end_time``: of the last one, seconds since the
    epoch; ``interval``: seconds between the ends of the last two.
    """

    def __init__(self) -> None:
        self.iterations: int | None = None
        self.is_open = False
        self.end_time: float | None = None
        self.interval: float | None = None

    def end(self) -> None:
        """The save is over."""
        now = time.time()
        self.interval = None if self.end_time is None else max(0.0, now - self.end_time)
        self.is_open, self.end_time = False, now
