"""Notes when the training saves something: a kill loses what it did since, and a save under way."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch


def listen(begins: Callable[[], None], saved: Callable[[], None]) -> None:
    """Have ``begins`` called before each `torch.save`, whose behaviour does not change, and
    ``saved`` after it.
    """
    original = torch.save

    @functools.wraps(original)
    def save(*args: Any, **kwargs: Any) -> None:
        begins()
        original(*args, **kwargs)
        saved()

    # Under both its names: a function is pickled by that of the module that it says it is from.
    torch.save = torch.serialization.save = save
