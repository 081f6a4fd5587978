"""Whose state stays in device memory: Hare's speculative memory management (section 4)."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

T = TypeVar("T", bound=Hashable)


def resident(
    following: Sequence[T], completed: Sequence[T], sizes: Mapping[T, int], capacity: int
) -> list[T]:
    """Who is to be in device memory of ``capacity`` bytes while the first of ``following`` runs.

    The next tasks come first, in their sequence; then those completed latest (``completed``, the
    latest first), as far as each fits (``sizes``, bytes).
    """
    chosen: list[T] = []
    free = capacity
    for trial in [*following, *completed]:
        if trial not in chosen and sizes[trial] <= free:
            chosen.append(trial)
            free -= sizes[trial]
    return chosen
