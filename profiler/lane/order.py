"""Orders turns: the shortest remaining training first once all are known, else round robin.

On one GPU tasks follow one another without waiting, so this minimises the mean completion time
(Smith 1956), the objective of Hare's policies, so all three policy names mean it. A test compares
it with the sequences of ``hopsctl sequence``; a lane need not start a process for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")

ROUND_ROBIN = "round-robin"
HARE = "hare"
POLICIES = (HARE, "hare-eft", "hare-dispatch")


def arrange(order: str, circle: Sequence[T], remaining: Mapping[T, float | None]) -> list[T]:
    """Sort the trials of ``circle`` in the order of their next turns.

    ``remaining``: seconds until each has finished training, None if unknown.
    """
    if order == ROUND_ROBIN or any(remaining[trial] is None for trial in circle):
        return list(circle)
    return sorted(circle, key=lambda trial: remaining[trial] or 0.0)
