"""Graphs that a loop builds and that lead to no backward pass: it acts, or evaluates the model."""

from __future__ import annotations

from hops_profiler.timing.counts import WARMUP
from hops_profiler.timing.regular import MIN_EVALUATION_INTERVAL

MANY = 4
"""So many times the nodes of other iterations are more than those of a larger batch of steps."""


class ForgottenGraphs:
    """Nodes of graphs by iteration. ``doubtful_seconds``: of iterations that built far larger ones
    than others without a longer backward pass, if the training began without any such graph, and
    they are rare: they may hold an evaluation, or rollouts that came late.
    """

    def __init__(self) -> None:
        self.doubtful_seconds = 0.0
        self._last_number: int | None = 0
        self._early_nodes = 0
        self._iterations = 0
        self._nodes = self._seconds = self._backward = 0.0  # sums over usual iterations
        self._number: int | None = None  # of the last node that a backward pass began from
        self._last_large = -MIN_EVALUATION_INTERVAL

    @property
    def has_number(self) -> bool:
        """True if a backward pass began since the last iteration's end."""
        return self._number is not None

    def add(self, number: int) -> None:
        """A backward pass begins from a node of this number: so many were made before it."""
        self._number = max(self._number or 0, number)

    def skip(self) -> None:
        """Iterations have ended whose nodes nobody counted."""
        self._last_number = self._number = None

    def end_iteration(self, iterations: int, took: float, backward: float) -> None:
        """The iteration after ``iterations`` others ``took`` so many seconds, of which the backward
        passes took ``backward``.
        """
        last, self._last_number, self._number = self._last_number, self._number, None
        if last is None or self._last_number is None:
            return  # nobody counted
        nodes = self._last_number - last
        if iterations == 0:
            self._early_nodes = nodes
            return
        usual = max(1, self._iterations)
        growth = nodes * usual / max(1.0, self._nodes)
        # The first pass after a long pause takes longer, as the caches are cold, but not so much.
        is_large = (
            iterations > WARMUP
            and growth > MANY
            and took * usual > 2.0 * self._seconds
            and backward * usual < max(2.0, growth / MANY) * self._backward
        )
        if not is_large:
            self._iterations += 1
            self._nodes += nodes
            self._seconds += took
            self._backward += backward
            return
        is_frequent = iterations - self._last_large < MIN_EVALUATION_INTERVAL
        self._last_large = iterations
        if is_frequent:
            self.doubtful_seconds = 0.0
        elif 2 * self._early_nodes < nodes:
            self.doubtful_seconds += took - self._seconds / usual
