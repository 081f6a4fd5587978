"""In which iterations the inputs of forward passes are inspected."""

from __future__ import annotations

from hops_profiler.timing.recorder import Recorder

INSPECT_AT = (1, 2)
"""Iterations after which the forward passes' inputs are inspected; those are not timed."""

INSPECT_AT_WITHOUT_LOADER = (5, 8, 11, 13)
"""Further ones if no loader shows the batch: it may vary."""

INTERVAL = 23
"""Least number of iterations between inspections if no loader shows the batch and it does not vary:
a prime number, as rollouts and the like come after round ones."""

PRIMES = (1, 3, 5, 7, 11, 13, 17, 19, INTERVAL, 47, 97, 199, 397, 797)
"""Without two, which would see the same half of a rollout's four or eight minibatches."""

INSPECTION_SECONDS = 100e-6
"""What an inspection costs besides the calls."""

MAX_SHARE = 0.005
"""Largest share of the time for inspections."""

LOSS_SECONDS = 15e-6
"""What it costs to read the loss of a backward pass: up to 64 nodes, mostly five."""


class InspectionPlan:
    """``seconds``: what the last inspection took."""

    def __init__(self) -> None:
        self.seconds = INSPECTION_SECONDS

    def interval(self, recorder: Recorder) -> int:
        """Iterations between inspections: as few as cost no more than MAX_SHARE of the time, but
        INTERVAL or more unless the input varies.
        """
        iteration = recorder.counts.iteration.mean
        if not iteration:
            return INTERVAL
        least = 1 if recorder.sample_counter.varies else INTERVAL
        shortest = max(least, self.seconds / (MAX_SHARE * iteration))
        return next((prime for prime in PRIMES if prime >= shortest), PRIMES[-1])

    def reads_losses(self, recorder: Recorder) -> bool:
        """True if the losses of all iterations are to be read, as inputs vary, and costs little."""
        iteration = recorder.counts.iteration.mean
        return recorder.sample_counter.shown_by_loss and MAX_SHARE * iteration > LOSS_SECONDS

    def is_due(self, recorder: Recorder, interval: int) -> bool:
        """True if the next iteration is to be inspected."""
        iterations = recorder.counts.iterations
        if iterations in INSPECT_AT:
            return True
        # Loaders show their batches: after the first iterations there is nothing to inspect.
        reads = recorder.sample_counter.reads
        is_early = iterations in INSPECT_AT_WITHOUT_LOADER or recorder.begins_late
        is_early |= recorder.sample_counter.needs_next
        return not reads and (is_early or iterations % interval == 0)
