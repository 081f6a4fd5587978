"""What was counted and timed so far."""

from __future__ import annotations

from hops_profiler.timing.series import Series

WARMUP = 3
"""Iterations that are counted and not timed: allocators, autotuning and compilers settle."""

PHASES = ("data", "forward", "backward", "update", "rest")


class Counts:
    """Of one training, or of one run of inference. Times in seconds, samples of this rank.

    ``iterations``, ``samples`` and ``passes`` (batches that went backward) are all that was done;
    ``iteration``, ``phases`` and ``on_device`` (the GPU's own clock) leave out the warm-up and
    iterations that were ``interrupted`` by an evaluation. ``backward_by_data``: time of the
    backward passes by the bin of the iteration's data time: the wait for slower peers hides there.
    """

    def __init__(self) -> None:
        self.iterations = 0
        self.samples = 0
        self.passes = 0
        self.timed_passes = 0
        self.timed_samples = 0
        self.interrupted = 0
        self.inference = False
        self.first_step = 0.0
        self.last_step = 0.0
        self.iteration = Series()
        self.phases = {name: Series() for name in PHASES}
        self.on_device = {name: Series() for name in PHASES}
        self.backward_by_data: dict[int, float] = {}

    def add(
        self, seconds: dict[str, float], samples: int, passes: int, now: float, *, whole: bool
    ) -> bool:
        """An iteration ended ``now``; not ``whole``: something else was in it. True: timed."""
        self.iterations += 1
        self.samples += samples
        self.passes += passes
        since, self.last_step = self.last_step, now
        if self.iterations == 1:
            self.first_step = now
        if not whole:
            self.interrupted += 1
        elif self.iterations > WARMUP:
            self.timed_samples += samples
            self.timed_passes += passes
            self.iteration.add(now - since)
            for name, series in self.phases.items():
                bin_ = series.add(seconds[name])
                if name == "data":
                    total = self.backward_by_data.get(bin_, 0.0)
                    self.backward_by_data[bin_] = total + seconds["backward"]
            return True
        return False

    def add_on_device(self, seconds: dict[str, float]) -> None:
        """The GPU's times of an iteration that was timed earlier."""
        for name, series in self.on_device.items():
            series.add(seconds[name])
