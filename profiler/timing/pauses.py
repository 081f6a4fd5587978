"""Judges what a loop that reads no loader does between two steps while it trains on nothing.

It may evaluate the model, or have it act to make what it then trains on. Rows that the model is
given without a graph tell the two apart, if anything does.
"""

from __future__ import annotations

from collections.abc import Sequence

from hops_profiler.timing.regular import MIN_EVALUATION_INTERVAL

EVALUATION = "evaluation"
ROLLOUT = "rollout"
DOUBT = "doubt"

MAX_DOUBTFUL_SHARE = 0.05
"""Share of the time that may be left out as evaluations where it is not known whether it is one."""


MANY = 4
"""So many times the batches trained on are more than a validation has."""


class Pauses:
    """Calls without a graph, by iteration. ``doubtful_seconds``: of iterations that may be either.

    - Batches as large as those of the training, more of them than a regular iteration has (for a
      target network): an evaluation; in doubt if they are many times those of the training since
      the last one, as where a model of the world plans.
    - Few rows, as when acting: a rollout if it came before the training began, too; an evaluation
      if regular iterations act anyway, so that the training needs nothing else; a rollout if it
      comes often; else in doubt.
    """

    def __init__(self) -> None:
        self.doubtful_seconds = 0.0
        self._batch = 0
        self._usual_large = self._usual_small = 0
        self._verdict = EVALUATION
        self._last = -MIN_EVALUATION_INTERVAL
        self.begin_iteration()

    def begin_iteration(self) -> None:
        self._calls: list[int] = []
        self._is_doubtful = self._is_inspected = False

    def add(self, samples: int, calls: Sequence[int]) -> None:
        """A backward pass over ``samples`` came after ``calls`` without a graph: rows of each."""
        self._is_inspected = True
        self._batch = samples or self._batch
        self._calls.extend(calls)

    def judge(self, iterations: int, *, is_early: bool) -> str:
        """What the iteration after ``iterations`` others did besides its training, as judged now or
        last.

        ``is_early``: the training began with the same code.
        """
        interval = iterations - self._last
        is_frequent = interval < MIN_EVALUATION_INTERVAL
        self._last = iterations
        large, small = self._count()
        if self._batch > 1 and large > self._usual_large:
            self._verdict = EVALUATION if large <= MANY * interval else DOUBT
        elif self._batch > 1 and small > self._usual_small:
            acts = self._usual_small > 0
            self._verdict = ROLLOUT if is_early else EVALUATION if acts else DOUBT
        if self._verdict == DOUBT and is_frequent:
            self._verdict = ROLLOUT  # the first one has been left out: its time stays in doubt
        self._is_doubtful = self._verdict == DOUBT
        return self._verdict

    def end_iteration(self, took: float, *, regular: bool) -> None:
        """The iteration that ends ``took`` so many seconds."""
        if self._is_doubtful:
            self.doubtful_seconds += took
        elif regular and self._is_inspected and self._verdict != ROLLOUT:
            large, small = self._count()
            self._usual_large = max(self._usual_large, large)
            self._usual_small = max(self._usual_small, small)

    def _count(self) -> tuple[int, int]:
        """Calls with about as many rows as a batch of the training, and with fewer."""
        large = sum(2 * rows >= self._batch for rows in self._calls)
        return large, len(self._calls) - large
