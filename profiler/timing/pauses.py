"""Judges what a loop that reads no loader does between two steps while it is not training.

It may evaluate the model, or have the model act to produce training data. The rows that the model
is given without a graph are the only means to tell the two apart.
"""

from __future__ import annotations

from collections.abc import Sequence

from hops_profiler.timing.regular import MIN_EVALUATION_INTERVAL

EVALUATION = "evaluation"
ROLLOUT = "rollout"
DOUBT = "doubt"

MAX_DOUBTFUL_SHARE = 0.05
"""Maximum share of the time that may be excluded as evaluations although this is in doubt."""


MANY = 4
"""A validation has at most this multiple of the batches trained on since the last one."""


class Pauses:
    """Judges iterations by their calls without a graph. ``doubtful_seconds`` is the total duration
    of iterations that may be either an evaluation or a rollout.

    - Batches as large as those of the training, and more of them than in a regular iteration (for
      a target network), are an evaluation. This is in doubt if there are many times as many as the
      training had since the last one, as when a world model plans.
    - Few rows, as when acting, are a rollout if they also came before training began; an evaluation
      if regular iterations act anyway, so that training needs nothing else; a rollout if they come
      often; and otherwise in doubt.
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
        """Note a backward pass over ``samples`` after graphless calls with the rows ``calls``."""
        self._is_inspected = True
        self._batch = samples or self._batch
        self._calls.extend(calls)

    def judge(self, iterations: int, *, is_early: bool) -> str:
        """Judge what the iteration after ``iterations`` others did besides training; the previous
        verdict stands if its calls show nothing.

        ``is_early`` says whether the first iterations ran the same code.
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
            self._verdict = ROLLOUT  # the first one has been excluded: its time stays in doubt
        self._is_doubtful = self._verdict == DOUBT
        return self._verdict

    def end_iteration(self, took: float, *, regular: bool) -> None:
        """End an iteration of ``took`` seconds."""
        if self._is_doubtful:
            self.doubtful_seconds += took
        elif regular and self._is_inspected and self._verdict != ROLLOUT:
            large, small = self._count()
            self._usual_large = max(self._usual_large, large)
            self._usual_small = max(self._usual_small, small)

    def _count(self) -> tuple[int, int]:
        """Numbers of calls with about as many rows as a training batch, and with fewer."""
        large = sum(2 * rows >= self._batch for rows in self._calls)
        return large, len(self._calls) - large
