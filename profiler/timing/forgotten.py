"""Detects graphs without a backward pass: the loop acts, or evaluates the model."""

from __future__ import annotations

from hops_profiler.timing.counts import WARMUP
from hops_profiler.timing.regular import MIN_EVALUATION_INTERVAL

MANY = 4
"""A larger batch of steps has at most this multiple of the usual number of nodes."""


class ForgottenGraphs:
    """Counts the nodes of graphs by iteration. ``doubtful_seconds`` is the excess duration of
    iterations that may contain an evaluation or late rollouts: rare ones that built far larger
    graphs than others without a longer backward pass, if training began without such graphs.
    """

    def __init__(self) -> None:
        self.doubtful_seconds = 0.0
        self._last_number: int | None = 0
        self._early_nodes = 0
        self._iterations = 0
        self._nodes = self._seconds = self._backward = 0.0  # sums over usual iterations
        self._number: int | None = None  # of the last node from which a backward pass began
        self._last_large = -MIN_EVALUATION_INTERVAL
        self._leads_to_step = False
        self._leading = 0  # iterations whose graphs may have led to another optimizer's step

    @property
    def has_number(self) -> bool:
        """True if a backward pass began since the last iteration's end."""
        return self._number is not None

    def add(self, number: int) -> None:
        """Note that a backward pass begins from node ``number``: so many nodes came before it."""
        self._number = max(self._number or 0, number)

    def lead_to_step(self) -> None:
        """Note that another optimizer stepped before a backward pass began. If that is rare, its
        gradients come from this iteration's graphs through `torch.autograd.grad`, so that they are
        no evaluation; else it shares the leader's pass.
        """
        self._leads_to_step = True

    def skip(self) -> None:
        """Note that iterations ended whose nodes were not counted."""
        self._last_number = self._number = None

    def end_iteration(self, iterations: int, took: float, backward: float) -> None:
        """End the iteration after ``iterations`` others. It ``took`` this many seconds, of which
        the backward passes took ``backward``.
        """
        last, self._last_number, self._number = self._last_number, self._number, None
        leads_to_step, self._leads_to_step = self._leads_to_step, False
        self._leading += leads_to_step
        if last is None or self._last_number is None:
            return  # nodes were not counted
        nodes = self._last_number - last
        if iterations == 0:
            self._early_nodes = nodes
            return
        usual = max(1, self._iterations)
        growth = nodes * usual / max(1.0, self._nodes)
        # The first pass after a long pause takes somewhat longer, as the caches are cold.
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
        if leads_to_step and self._leading * MIN_EVALUATION_INTERVAL <= iterations:
            return
        is_frequent = iterations - self._last_large < MIN_EVALUATION_INTERVAL
        self._last_large = iterations
        if is_frequent:
            self.doubtful_seconds = 0.0
        elif 2 * self._early_nodes < nodes:
            self.doubtful_seconds += took - self._seconds / usual
