"""Reads the samples of a pass from its loss alone, which costs far less than an inspection."""

from __future__ import annotations

MIN_PASSES = 4
"""Minimum number of inspected passes, all of which have to agree."""


class LossRows:
    """Learns from inspections whether the first axis of the loss has the length of the batch, for
    each pass of an iteration. A pass has no samples of its own if another pass has counted them.
    """

    def __init__(self) -> None:
        self._shows: dict[int, bool] = {}  # by number of the pass
        self._passes = 0
        self._differs = False

    @property
    def is_known(self) -> bool:
        return self._passes >= MIN_PASSES and not self._differs

    def learn(self, number: int, samples: int, rows: int) -> None:
        """Learn that pass ``number`` was over ``samples`` and that its loss had ``rows`` rows."""
        shows = samples > 0
        agrees = samples in (0, rows) and self._shows.setdefault(number, shows) == shows
        self._differs |= not agrees
        self._passes += 1

    def give_up(self) -> None:
        """Stop reading losses: a pass trained nothing, which a loss alone does not show."""
        self._differs = True

    def samples(self, number: int, rows: int) -> int | None:
        """Samples of pass ``number`` whose loss has ``rows`` rows.

        A pass whose number was not inspected (a further step of a longer episode) is taken to be
        like the others if these are all alike. Otherwise returns None, and losses are no longer
        used, as they would show only the shorter iterations.
        """
        kinds = set(self._shows.values())
        shows = self._shows.get(number, kinds.pop() if len(kinds) == 1 else None)
        self._differs |= shows is None
        return None if shows is None else rows * shows
