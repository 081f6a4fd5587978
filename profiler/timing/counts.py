"""The counts and times so far."""

from __future__ import annotations

from hops_profiler.timing.series import Series

WARMUP = 3
"""Iterations that are counted but not timed, while allocators, autotuning and compilers settle."""

PHASES = ("data", "forward", "backward", "update", "rest")


class Counts:
    """Counts of one training, or of one inference run. Times in seconds, samples of this rank.

    ``iterations``, ``passes``, ``samples`` and ``batches`` are all that was done; ``iteration``,
    ``phases`` and ``on_device`` (the GPU's own clock) leave out the warm-up and iterations that
    were ``interrupted`` by an evaluation. ``read``: batches that came from a loader. For
    ``timed_batches`` and ``timed_samples`` see :meth:`time`. ``backward_by_data``: time of the
    backward passes by the bin of the iteration's data time: the wait for slower peers hides there.
    """

    def __init__(self) -> None:
        self.iterations = 0
        self.passes = 0
        self.samples = 0.0
        self.batches = 0.0
        self.read = 0.0
        self.timed_samples = 0.0
        self.timed_batches = 0.0
        self.interrupted = 0
        self.inference = False
        self.first_step = 0.0
        self.last_step = 0.0
        self.took = 0.0
        self.iteration = Series()
        self.phases = {name: Series() for name in PHASES}
        self.on_device = {name: Series() for name in PHASES}
        self.backward_by_data: dict[int, float] = {}

    def count(self, samples: float, batches: float, *, read: bool) -> None:
        """Count ``samples`` in ``batches`` as trained on."""
        self.samples += samples
        self.batches += batches
        if read:
            self.read += batches

    def end(self, now: float, iterations: int, passes: int = 0) -> None:
        """Note the end of an iteration of this many passes, or of several taken for one."""
        if not self.iterations:
            self.first_step = now
        self.iterations += iterations
        self.passes += passes
        self.took = now - self.last_step
        self.last_step = now

    def time(self, took: float, seconds: dict[str, float], samples: float, batches: float) -> None:
        """Add an iteration that ``took`` so many seconds: it was a usual one."""
        self.timed_samples += samples
        self.timed_batches += batches
        self.iteration.add(took)
        phases = self.phases
        for name in ("forward", "backward", "update", "rest"):
            phases[name].add(seconds[name])
        bin_ = phases["data"].add(seconds["data"])
        by_data = self.backward_by_data
        by_data[bin_] = by_data.get(bin_, 0.0) + seconds["backward"]

    def usual(self, seconds: dict[str, list[float]], ends: list[float], samples: float) -> None:
        """Count and time iterations of one batch and one pass each.

        Given are the times of their phases, their ends, and their samples in all.
        """
        count = len(ends)
        self.count(samples, count, read=True)
        self.timed_samples += samples
        self.timed_batches += count
        self.iteration.extend(between([self.last_step, *ends], ends))
        bins = {name: self.phases[name].extend(times) for name, times in seconds.items()}
        by_data = self.backward_by_data
        for bin_, backward in zip(bins["data"], seconds["backward"]):  # noqa: B905
            by_data[bin_] = by_data.get(bin_, 0.0) + backward
        self.end(ends[-1], count, count)

    def add_on_device(self, seconds: dict[str, float]) -> None:
        """Add the GPU's times of an iteration that was timed earlier."""
        for name, series in self.on_device.items():
            series.add(seconds[name])


def between(begins: list[float], ends: list[float]) -> list[float]:
    """The time from each of ``begins`` to that of ``ends`` in the same place."""
    return [end - begin for begin, end in zip(begins, ends)]  # noqa: B905 - Python 3.8
