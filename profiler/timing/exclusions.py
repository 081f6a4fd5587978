"""Doubts evaluations if many of the iterations with as many passes look like one."""

from __future__ import annotations

from hops_profiler.timing.regular import MAX_KINDS, MIN_EVALUATION_INTERVAL


class Exclusions:
    """Counts iterations by their number of passes, and the excluded ones among them."""

    def __init__(self) -> None:
        # By number of passes: iterations, and how many were excluded, with seconds in total.
        self._kinds: dict[int, list[float]] = {}

    def clear(self) -> None:
        self._kinds.clear()

    def add(self, passes: int, iterations: int, excluded_seconds: float = 0.0) -> None:
        """Count ``iterations``; one of them may have been excluded, with its seconds."""
        if passes not in self._kinds and len(self._kinds) >= MAX_KINDS:
            return
        kind = self._kinds.setdefault(passes, [0, 0, 0.0])
        kind[0] += iterations
        if excluded_seconds:
            kind[1] += 1
            kind[2] += excluded_seconds

    @property
    def doubtful_seconds(self) -> float:
        """Total of excluded iterations if most others have another number of passes, and more than
        every 16th with this number is excluded: rollouts that come with further passes may be
        longer and shorter than an iteration in turns.
        """
        iterations = sum(kind[0] for kind in self._kinds.values())
        return sum(
            seconds
            for count, excluded, seconds in self._kinds.values()
            if 2 * count < iterations and 1 < excluded > count / MIN_EVALUATION_INTERVAL
        )
