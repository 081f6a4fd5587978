"""Decides whose state stays in device memory: Hare's speculative memory management (section 4)."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

T = TypeVar("T", bound=Hashable)


def resident(
    queue: Sequence[T], latest: Sequence[T], sizes: Mapping[T, int], capacity: int
) -> list[T]:
    """Choose the trials in device memory of ``capacity`` bytes while the first of ``queue`` runs.

    First come the next trials, in the order of the queue, then the ``latest`` to have run, the last
    one first; each is chosen if it fits. ``sizes``: bytes by trial.
    """
    residents: list[T] = []
    free = capacity
    for trial in [*queue, *latest]:
        if trial not in residents and sizes[trial] <= free:
            residents.append(trial)
            free -= sizes[trial]
    return residents
