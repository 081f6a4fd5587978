"""Whose turn is next: the least that is left first, once that is known of all; else round robin.

On one GPU tasks follow one another without waiting, so that has the earliest mean completion (Smith
1956), which Hare's policies aim at. A test compares it with theirs, which ``hopsctl sequence``
prints: a lane need not start a process for it.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

T = TypeVar("T", bound=Hashable)

ROUND_ROBIN = "round-robin"
POLICIES = ("hare-dispatch", "hare-eft", "hare")


def arrange(policy: str, circle: Sequence[T], left: Mapping[T, float | None]) -> list[T]:
    """The trials of ``circle``, which go round in it, by when their next turn comes.

    ``left``: seconds that each has still to train, None if unknown.
    """
    known = {trial: seconds for trial in circle if (seconds := left[trial]) is not None}
    if policy == ROUND_ROBIN or len(known) < len(circle):
        return list(circle)
    return sorted(circle, key=known.__getitem__)
