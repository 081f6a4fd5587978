"""Learns what a usual iteration of a training is: anything beyond that in one is not training."""

from __future__ import annotations

SURE = 8
"""Votes kept: after this many differing iterations in a row another kind is the usual one."""

MOST_KINDS = 32
"""How many numbers of backward passes are distinguished."""


class Usual:
    """By the number of backward passes in an iteration: how many batches were read for it, how
    often a model was put into evaluation mode, and how many samples it trained on.

    Learnt from the iterations themselves by majority vote (Boyer and Moore), so that it does not
    matter whether a loop reads one batch for a step, one from each of several loaders, eight for
    an accumulated gradient, or none.
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
        """Like :meth:`holds`, but nothing is noted."""
        kind = self._kinds.get(passes)
        return kind is not None and kind[0] == fetches and kind[1] == evaluations

    def reads(self, fetches: int) -> bool:
        """True if a usual iteration reads so many batches, whatever its number of passes."""
        return any(kind[0] == fetches and kind[4] for kind in self._kinds.values())

    def lacks_one(self, passes: int, fetches: int) -> bool:
        """True of an iteration that read one batch less than usual."""
        kind = self._kinds.get(passes)
        return kind is not None and kind[0] == fetches + 1

    def confirmed(self, times: int, samples: float) -> None:
        """Note so many usual iterations of one pass over one batch, the last of ``samples``."""
        kind = self._kinds[1]
        kind[2:] = min(SURE, kind[2] + times), samples, 1

    def trained(self, passes: int, samples: float, batches: float) -> None:
        """Note that a usual iteration trained on ``samples`` in ``batches``."""
        self._kinds[passes][3:] = samples, batches

    def expected(self, passes: int, batches: float) -> tuple[float, float] | None:
        """Samples and batches of an iteration with this many passes; None if unknown.

        If no batch is read, ``batches`` counts passes and is right.
        """
        kinds = {passes: self._kinds[passes]} if passes in self._kinds else {}
        kinds.update(self._kinds)
        for others, (fetches, _, _, samples, usual) in kinds.items():
            if usual:
                more = max(1, passes) / max(1, others) if fetches else batches / usual
                return samples * more, usual * more
        return None

    def _meet(self, passes: int, fetches: int, evaluations: int) -> bool:
        """Note a new number of passes. It is usual if it reads as much per pass as others do, as an
        accumulation cut short by an epoch's end does."""
        fits = not self._kinds or any(
            kind[0] * passes == fetches * others and kind[1] == evaluations
            for others, kind in self._kinds.items()
        )
        if len(self._kinds) >= MOST_KINDS:
            self._kinds.clear()
        self._kinds[passes] = [fetches, evaluations, 1 if fits else 0, 0, 0]
        return fits
