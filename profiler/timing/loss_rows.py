"""Samples of a pass by the loss alone: reading its first axis costs far less than an inspection."""

from __future__ import annotations

MIN_PASSES = 4
"""Inspected passes that have to agree."""


class LossRows:
    """Whether the first axis of the loss has the samples, as inspections show, for each pass of an
    iteration; or a pass has none, over samples that have been counted.
    """

    def __init__(self) -> None:
        self._shows: dict[int, bool] = {}  # by number of the pass
        self._passes = 0
        self._differs = False

    @property
    def is_known(self) -> bool:
        return self._passes >= MIN_PASSES and not self._differs

    def learn(self, number: int, samples: int, rows: int) -> None:
        """The pass of this number was over ``samples``; the loss had so many ``rows``."""
        shows = samples > 0
        agrees = samples in (0, rows) and self._shows.setdefault(number, shows) == shows
        self._differs |= not agrees
        self._passes += 1

    def give_up(self) -> None:
        """A pass has led to nothing: a loss alone does not show that."""
        self._differs = True

    def samples(self, number: int, rows: int) -> int | None:
        """Samples of a pass whose loss has so many rows. None if no such pass was inspected, unless
        all were alike that were, as those of a longer episode's further steps are; then samples are
        not known by losses any more, as the iterations that they showed would be the shorter ones.
        """
        kinds = set(self._shows.values())
        shows = self._shows.get(number, kinds.pop() if len(kinds) == 1 else None)
        self._differs |= shows is None
        return None if shows is None else rows * shows
