"""What a training's iterations usually are: what is in one of them beyond that is no training."""

from __future__ import annotations

SURE = 8
"""Votes that are kept: so many other iterations in a row, and another kind is the usual one."""

MOST_KINDS = 32
"""Numbers of backward passes that are told apart."""


class Usual:
    """By the number of an iteration's backward passes: how many batches were read for it, how
    often a model was put into evaluation mode, and how many samples it trained on.

    Learnt from the iterations themselves, by the vote of the majority (Boyer and Moore's), so that
    it does not matter whether a loop reads one batch for a step, one from each of several loaders,
    eight for an accumulated gradient, or none.
    """

    def __init__(self) -> None:
        self._kinds: dict[int, list[float]] = {}

    def holds(self, passes: int, fetches: int, evaluations: int) -> bool:
        """Note an iteration's kind. True where it is the usual one."""
        kind = self._kinds.get(passes)
        if kind is None:
            return self._meet(passes, fetches, evaluations)
        if kind[0] == fetches and kind[1] == evaluations:
            if kind[2] < SURE:
                kind[2] += 1
            return True
        kind[2] -= 1
        if kind[2] >= 0:
            return False
        kind[:] = fetches, evaluations, 1, 0, 0
        return True

    def is_known(self, passes: int, fetches: int, evaluations: int) -> bool:
        """As :meth:`holds`, but nothing is noted."""
        kind = self._kinds.get(passes)
        return kind is not None and kind[0] == fetches and kind[1] == evaluations

    def trained(self, passes: int, samples: float, batches: float) -> None:
        """A usual iteration trained on ``samples`` in ``batches``."""
        self._kinds[passes][3:] = samples, batches

    def expected(self, passes: int, batches: float) -> tuple[float, float] | None:
        """Samples and batches of an iteration of so many passes; None where nobody knows.

        ``batches`` is right where none is read: those are passes.
        """
        kinds = {passes: self._kinds[passes]} if passes in self._kinds else {}
        kinds.update(self._kinds)
        for others, (fetches, _, _, samples, usual) in kinds.items():
            if usual:
                more = max(1, passes) / max(1, others) if fetches else batches / usual
                return samples * more, usual * more
        return None

    def _meet(self, passes: int, fetches: int, evaluations: int) -> bool:
        """A number of passes that is new. As an accumulation that an epoch cut short, it is usual
        where it reads as much for a pass as others do."""
        fits = not self._kinds or any(
            kind[0] * passes == fetches * others and kind[1] == evaluations
            for others, kind in self._kinds.items()
        )
        if len(self._kinds) >= MOST_KINDS:
            self._kinds.clear()
        self._kinds[passes] = [fetches, evaluations, 1 if fits else 0, 0, 0]
        return fits
