"""Decides in which iterations the inputs of forward passes are inspected."""

from __future__ import annotations

from hops_profiler.timing.recorder import Recorder

INSPECT_AT = (1, 2)
"""Iterations after which the next forward passes' inputs are inspected; warm-up, so untimed."""

INSPECT_AT_WITHOUT_LOADER = (5, 8, 11, 13)
"""Further such iterations if no loader shows the batch, as its size may vary."""

INTERVAL = 23
"""Minimum number of iterations between inspections if no loader shows the batch and its size does
not vary. It is prime because rollouts and the like come at round intervals."""

PRIMES = (1, 3, 5, 7, 11, 13, 17, 19, INTERVAL, 47, 97, 199, 397, 797)
"""Possible intervals. 2 is left out: it would see the same half of a rollout's four or eight
minibatches every time."""

INSPECTION_SECONDS = 100e-6
"""Cost of an inspection besides that of the inspected calls."""

MAX_SHARE = 0.005
"""Maximum share of the time spent on inspections."""

LOSS_SECONDS = 15e-6
"""Cost of reading the loss of a backward pass: up to 64 nodes, usually five."""


class InspectionPlan:
    """Schedules inspections by their cost; ``seconds`` is the cost of the last one."""

    def __init__(self) -> None:
        self.seconds = INSPECTION_SECONDS

    def interval(self, recorder: Recorder) -> int:
        """Iterations between inspections: the fewest that keep the cost within MAX_SHARE of the
        time, but at least INTERVAL unless the input varies.
        """
        iteration = recorder.counts.iteration.mean
        if not iteration:
            return INTERVAL
        least = 1 if recorder.sample_counter.varies else INTERVAL
        shortest = max(least, self.seconds / (MAX_SHARE * iteration))
        return next((prime for prime in PRIMES if prime >= shortest), PRIMES[-1])

    def reads_losses(self, recorder: Recorder) -> bool:
        """True if the loss of every iteration is to be read: inputs vary, and reading is cheap."""
        iteration = recorder.counts.iteration.mean
        return recorder.sample_counter.shown_by_loss and MAX_SHARE * iteration > LOSS_SECONDS

    def is_due(self, recorder: Recorder, interval: int) -> bool:
        """True if the next iteration is to be inspected."""
        iterations = recorder.counts.iterations
        counter = recorder.sample_counter
        if iterations in INSPECT_AT or counter.awaits_steps or counter.reads_less:
            return True
        # Loaders show their batches, so nothing needs inspection after the first iterations.
        reads = recorder.sample_counter.reads
        is_early = iterations in INSPECT_AT_WITHOUT_LOADER or recorder.begins_late
        is_early |= recorder.sample_counter.needs_next
        return not reads and (is_early or iterations % interval == 0)
