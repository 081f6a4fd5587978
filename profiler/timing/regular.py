"""Learns what a regular iteration does, so that evaluations can be told apart from training."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_VOTES = 8
"""After this many different iterations in a row, another kind becomes the regular one."""

MAX_KINDS = 32
"""Maximum number of different numbers of backward passes that are distinguished."""

MAX_PLACES = 256
"""Maximum number of places in the code that are distinguished."""

MIN_EVALUATION_INTERVAL = 16
"""Minimum number of iterations between two evaluations. Rollouts, and generated texts that a step
trains on, come more often."""


FREQUENT = "frequent"
"""Stands for the places of code that more than one of the first iterations ran without a graph."""


class RegularIterations:
    """Learns for each number of backward passes in an iteration how many batches a regular one
    reads, how often it puts a model into evaluation mode, and how many samples it trains on.

    The iterations decide by majority vote (Boyer and Moore), so it does not matter whether a loop
    reads one batch per step, one from each of several loaders, eight for an accumulated gradient,
    or none. ``reads_less`` is True once they read fewer batches than before.
    """

    def __init__(self) -> None:
        # By number of passes: fetches, evaluations, votes, samples, batches.
        self._kinds: dict[int, list[float]] = {}
        self.reads_less = False
        self._last_uneven = -MIN_EVALUATION_INTERVAL
        self._late_places: dict[Any, tuple[int, int]] = {}  # their first and last iterations

    def even_out(self, passes: int, evaluations: int, iterations: int) -> int:
        """Evaluations of the iteration after ``iterations`` others, without those of a rollout.

        If every iteration has some and their number often differs, each step of a rollout puts the
        model into evaluation mode.
        """
        kind = self._kinds.get(passes)
        if kind is None or evaluations in (0, kind[1]) or not kind[1]:
            return evaluations
        is_frequent = iterations - self._last_uneven < MIN_EVALUATION_INTERVAL
        self._last_uneven = iterations
        return int(kind[1]) if is_frequent else evaluations

    def evaluates(self, late_place: Any, iterations: int) -> bool:
        """Whether the code at ``late_place``, which the first iterations did not run, is an
        evaluation in the iteration after ``iterations`` others. An evaluation every n iterations
        runs first within n iterations. Rollouts may begin much later, after steps on a buffer that
        random actions filled.
        """
        if len(self._late_places) >= MAX_PLACES:
            self._late_places.clear()
        first, last = self._late_places.get(late_place, (iterations, 0))
        self._late_places[late_place] = first, iterations
        return first < 2 * (iterations - last)

    def vote(self, passes: int, fetches: int, evaluations: int) -> bool:
        """Add an iteration's vote. True if the iteration is a regular one."""
        kind = self._kinds.get(passes)
        if kind is None:
            return self._add_kind(passes, fetches, evaluations)
        if kind[0] == fetches and kind[1] == evaluations:
            if kind[2] < MAX_VOTES:
                kind[2] += 1
            return True
        kind[2] -= 1
        if kind[2] >= 0:
            return False
        self.reads_less |= 0 < fetches < kind[0]
        kind[:] = fetches, evaluations, 1, 0, 0
        return True

    def is_new(self, passes: int, fetches: int, evaluations: int) -> bool:
        """True if the only iteration with this many passes is one that was not regular."""
        return self._kinds.get(passes) == [fetches, evaluations, 0, 0, 0]

    def evaluations(self, passes: int) -> int | None:
        """Evaluations of a regular iteration with this many passes; None if unknown."""
        kind = self._kinds.get(passes)
        return None if kind is None else int(kind[1])

    def includes(self, passes: int, fetches: int, evaluations: int) -> bool:
        """Like :meth:`vote`, but adds no vote."""
        kind = self._kinds.get(passes)
        return kind is not None and kind[0] == fetches and kind[1] == evaluations

    def reads(self, fetches: int) -> bool:
        """True if a regular iteration, of any number of passes, reads ``fetches`` batches."""
        return any(kind[0] == fetches and kind[4] for kind in self._kinds.values())

    def lacks_one(self, passes: int, fetches: int) -> bool:
        """True if an iteration with ``fetches`` read one batch less than a regular one."""
        kind = self._kinds.get(passes)
        return kind is not None and kind[0] == fetches + 1

    def confirm(self, count: int, samples: float) -> None:
        """Confirm ``count`` iterations of one pass over one batch; the last was of ``samples``."""
        kind = self._kinds[1]
        kind[2:] = min(MAX_VOTES, kind[2] + count), samples, 1

    def learn(self, passes: int, samples: float, batches: float) -> None:
        """Note that a regular iteration trained on ``samples`` in ``batches``."""
        self._kinds[passes][3:] = samples, batches

    def predict(self, passes: int, batches: float) -> tuple[float, float] | None:
        """Samples and batches of an iteration with this many passes; None if unknown.

        If no batch is read, ``batches`` counts passes and is exact.
        """
        kinds = {passes: self._kinds[passes]} if passes in self._kinds else {}
        kinds.update(self._kinds)
        for kind_passes, (fetches, _, _, samples, kind_batches) in kinds.items():
            if kind_batches:
                ratio = max(1, passes) / max(1, kind_passes) if fetches else batches / kind_batches
                return samples * ratio, kind_batches * ratio
        return None

    def _add_kind(self, passes: int, fetches: int, evaluations: int) -> bool:
        """Add a new number of passes. It is regular if it reads as much per pass as others do, like
        an accumulation cut short by the end of an epoch."""
        fits = not self._kinds or any(
            kind[0] * passes == fetches * kind_passes and kind[1] == evaluations
            for kind_passes, kind in self._kinds.items()
        )
        if len(self._kinds) >= MAX_KINDS:
            self._kinds.clear()
        self._kinds[passes] = [fetches, evaluations, 1 if fits else 0, 0, 0]
        return fits


class WarmUp:
    """Holds the first iterations, which are counted once a regular iteration is known."""

    def __init__(self) -> None:
        # passes, fetches, evaluations, samples, batches
        self._iterations: list[tuple[int, int, int, float, float]] = []

    def __len__(self) -> int:
        return len(self._iterations)

    def add(
        self, passes: int, fetches: int, evaluations: int, samples: float, batches: float
    ) -> None:
        self._iterations.append((passes, fetches, evaluations, samples, batches))

    def clear(self) -> None:
        self._iterations = []

    def copy(self) -> WarmUp:
        """A copy, for :meth:`restore`."""
        copy = WarmUp()
        copy.restore(self)
        return copy

    def restore(self, copy: WarmUp) -> None:
        """Restore the iterations of ``copy``."""
        self._iterations = list(copy._iterations)

    def scale_samples(self, factor: float) -> None:
        """Multiply the samples of all iterations."""
        self._iterations = [
            (passes, fetches, evaluations, samples * factor, batches)
            for passes, fetches, evaluations, samples, batches in self._iterations
        ]

    def trained_on(self, regular: RegularIterations) -> list[tuple[float, float]]:
        """Samples and batches of each iteration, by what ``regular`` has learnt so far."""
        return [
            (samples, batches)
            if samples
            and (regular.includes(passes, fetches, evaluations) or regular.reads(fetches))
            else regular.predict(passes, batches) or (samples, batches)
            for passes, fetches, evaluations, samples, batches in self._iterations
        ]
