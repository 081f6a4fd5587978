"""When a training saves, as its processes report it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SaveTimes:
    """``saving``: a save is under way; ``at``: when the last whole one had ended, by the node's
    clock (epoch), 0: none was seen; ``every``: seconds between the last two, None: unknown.
    """

    saving: bool = False
    at: float = 0.0
    every: float | None = None

    def ends_by(self, now: float, seconds: float) -> bool:
        """Whether a save is under way, or expected to end in the next ``seconds``."""
        return self.saving or (self.every is not None and self.at + self.every <= now + seconds)
