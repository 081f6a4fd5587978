"""When the training last saved something: what it does afterwards, a kill takes away."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch


def listen(saved: Callable[[], None]) -> None:
    """Have ``saved`` called after each `torch.save`, which does what it did."""
    original = torch.save

    @functools.wraps(original)
    def save(*args: Any, **kwargs: Any) -> None:
        original(*args, **kwargs)
        saved()

    # Under both its names: a function is pickled by that of the module that it says it is from.
    torch.save = torch.serialization.save = save
