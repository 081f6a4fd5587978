"""Passes that accumulate a gradient, where no hook sees the step that they lead to."""

from __future__ import annotations


class Accumulation:
    """Learns from gradients that are kept or cleared how many passes lead to a step.

    ``passes``: of a step, as many as the last two had, if these agree; else 1.
    """

    def __init__(self) -> None:
        self.passes = 1
        self._begun = self._last = 0  # passes since gradients were cleared, and of the step before

    @property
    def is_full(self) -> bool:
        """True if the pass that began last is the last one of its step."""
        return self._begun >= self.passes

    @property
    def is_half_seen(self) -> bool:
        """True if gradients were cleared once: the next time shows whether steps are alike."""
        return self._last > 0 and self._begun < self._last

    def begin_pass(self, *, keeps: bool) -> None:
        """A pass begins that ``keeps`` the gradients of the one before, and adds to them."""
        if keeps:
            self._begun += 1
            return
        if self._last:
            self.passes = self._begun if self._begun == self._last else 1
        self._last, self._begun = self._begun, 1
