"""Whose turn is next: the least that is left first, once that is known of all; else round robin.

On one GPU tasks follow one another without waiting, so that has the earliest mean completion (Smith
1956), which Hare's policies aim at: the names of all three mean it. A test compares it with theirs,
which ``hopsctl sequence`` prints: a lane need not start a process for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")

ROUND_ROBIN = "round-robin"
HARE = "hare"
POLICIES = (HARE, "hare-eft", "hare-dispatch")


def arrange(order: str, circle: Sequence[T], left: Mapping[T, float | None]) -> list[T]:
    """The trials of ``circle``, which go round in it, by when their next turn comes.

    ``left``: seconds that each has still to train, None if unknown.
    """
    if order == ROUND_ROBIN or any(left[trial] is None for trial in circle):
        return list(circle)
    return sorted(circle, key=lambda trial: left[trial] or 0.0)
