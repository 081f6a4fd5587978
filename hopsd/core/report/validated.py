"""Validators for values from untrusted JSON: correct type and range, or refused."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from hopsd.errors import FormatError
from hopsd.model import bounds


def text(document: Mapping[str, Any], key: str) -> str:
    """Return a string of 1 to 255 characters.

    Raises:
        FormatError: the value is something else (likewise in the other functions here).
    """
    value = document.get(key)
    if not isinstance(value, str) or not 0 < len(value) <= 255:
        raise FormatError(f"{key}: give 1 to 255 characters")
    return value


def number(
    document: Mapping[str, Any], key: str, maximum: float = bounds.ITERATIONS.maximum
) -> float:
    """Return a finite number from 0 to ``maximum``."""
    value = document.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise FormatError(f"{key}: give a number")
    # Compare before converting: an int of a thousand digits does not fit in a float.
    if not 0 <= value <= maximum or not math.isfinite(value):
        raise FormatError(f"{key}: give 0 to {maximum:g}")
    return float(value)


def integer(
    document: Mapping[str, Any], key: str, maximum: float = bounds.ITERATIONS.maximum
) -> int:
    """Return a whole number from 0 to ``maximum``."""
    value = number(document, key, maximum)
    if value != int(value):
        raise FormatError(f"{key}: give a whole number")
    return int(value)
