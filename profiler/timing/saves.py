"""Notes when the training saves: a kill loses all work since, or a save that is not complete."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import torch


def listen(begin: Callable[[], None], end: Callable[[], None]) -> None:
    """Call ``begin`` before and ``end`` after each `torch.save`, without changing its behaviour."""
    original = torch.save

    @functools.wraps(original)
    def save(*args: Any, **kwargs: Any) -> None:
        begin()
        original(*args, **kwargs)
        end()

    # Set both names, as pickle looks a function up by the module that it says it comes from.
    torch.save = torch.serialization.save = save


class SaveLog:
    """Log of the training's saves. ``iterations`` is the number done at the last save, None before
    the first. ``is_open`` is True during a save, which lasts until training continues, as it may
    consist of several files. ``end_time`` is the end of the last save in seconds since the epoch,
    ``interval`` the time between the ends of the last two in seconds.
    """

    def __init__(self) -> None:
        self.iterations: int | None = None
        self.is_open = False
        self.end_time: float | None = None
        self.interval: float | None = None

    def end(self) -> None:
        """Note the end of the current save."""
        now = time.time()
        self.interval = None if self.end_time is None else max(0.0, now - self.end_time)
        self.is_open, self.end_time = False, now
