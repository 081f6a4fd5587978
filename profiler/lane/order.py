"""Whose turn is next: the shortest remaining training first, once all are known; else round robin.

On one GPU tasks follow one another without waiting, so this has the earliest mean completion (Smith
1956), which Hare's policies aim at: the names of all three policies mean it. A test compares it
with the sequences of ``hopsctl sequence``; a lane need not start a process for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")

ROUND_ROBIN = "round-robin"
HARE = "hare"
POLICIES = (HARE, "hare-eft", "hare-dispatch")


def arrange(order: str, circle: Sequence[T], remaining: Mapping[T, float | None]) -> list[T]:
    """The trials of ``circle``, in the order of their next turns.

    ``remaining``: seconds until each has trained, None if unknown.
    """
    if order == ROUND_ROBIN or any(remaining[trial] is None for trial in circle):
        return list(circle)
    return sorted(circle, key=lambda trial: remaining[trial] or 0.0)
