"""Counts the passes that accumulate a gradient if no hook sees the step that they lead to."""

from __future__ import annotations


class Accumulation:
    """Learns from kept or cleared gradients how many passes lead to a step.

    ``passes`` is the number of passes of the last two steps if they agree, else 1.
    """

    def __init__(self) -> None:
        self.passes = 1
        self._begun = self._last = 0  # passes since gradients were cleared; of the previous step

    @property
    def is_full(self) -> bool:
        """True if the pass that began most recently is the last one of its step."""
        return self._begun >= self.passes

    @property
    def is_half_seen(self) -> bool:
        """True if gradients were cleared once; the next time shows whether the steps are alike."""
        return self._last > 0 and self._begun < self._last

    @property
    def is_unseen(self) -> bool:
        """True if all passes so far added to one gradient: where it is cleared was not seen."""
        return self._last == 0 and self._begun > 1

    def begin_pass(self, *, keeps: bool) -> None:
        """Begin a pass; ``keeps`` says whether it adds to the gradients of the previous one."""
        if keeps:
            self._begun += 1
            return
        if self._last:
            self.passes = self._begun if self._begun == self._last else 1
        self._last, self._begun = self._begun, 1
