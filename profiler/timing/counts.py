"""Counts and times of a training so far."""

from __future__ import annotations

from operator import sub

from hops_profiler.timing.series import Histogram, Series

WARMUP = 3
"""First iterations, counted but not timed while allocators, autotuning and compilers settle."""

PHASES = ("data", "forward", "backward", "update", "rest")


class Counts:
    """Counts of one training, or of one inference run. Times in seconds, samples of this rank.

    ``iterations``, ``passes``, ``samples`` and ``batches`` count everything; ``loader_batches`` of
    the batches came from a loader. ``iteration``, ``phases`` and ``on_device`` (the GPU's clock),
    ``timed_batches`` and ``timed_samples`` exclude the warm-up and the ``interruptions``, which are
    iterations with an evaluation. ``took`` is the duration of the last iteration. ``data``,
    ``backward`` and ``backward_on_device`` are those of the phases whose distribution is needed.
    ``backward_by_data`` has the total seconds of backward passes by the bin of the iteration's data
    time, which shows how long they waited for slower ranks.
    """

    def __init__(self) -> None:
        self.iterations = 0
        self.passes = 0
        self.samples = 0.0
        self.batches = 0.0
        self.loader_batches = 0.0
        self.timed_samples = 0.0
        self.timed_batches = 0.0
        self.interruptions = 0
        self.inference = False
        self.first_step = 0.0
        self.last_step = 0.0
        self.took = 0.0
        self.iteration = Series()
        self.data, self.backward = Histogram(), Histogram()
        self.phases = _series_by_phase(data=self.data, backward=self.backward)
        self.backward_on_device = Histogram()
        self.on_device = _series_by_phase(backward=self.backward_on_device)
        self.backward_by_data: dict[int, float] = {}

    def count(self, samples: float, batches: float, *, read: bool) -> None:
        """Count ``samples`` in ``batches`` as trained on; ``read`` if a loader yielded them."""
        self.samples += samples
        self.batches += batches
        if read:
            self.loader_batches += batches

    def end(self, now: float, iterations: int, passes: int = 0) -> None:
        """Note the end of one iteration of ``passes``, or of several that are counted as one."""
        if not self.iterations:
            self.first_step = now
        self.iterations += iterations
        self.passes += passes
        self.took = now - self.last_step
        self.last_step = now

    def time(self, took: float, seconds: dict[str, float], samples: float, batches: float) -> None:
        """Add the times of a regular iteration: ``took`` in all, and ``seconds`` by phase."""
        self.timed_samples += samples
        self.timed_batches += batches
        self.iteration.add(took)
        for name, series in self.phases.items():
            if name != "data":
                series.add(seconds[name])
        bin_ = self.data.add(seconds["data"])
        by_data = self.backward_by_data
        by_data[bin_] = by_data.get(bin_, 0.0) + seconds["backward"]

    def add_regular(
        self, seconds: dict[str, list[float]], ends: list[float], samples: float, *, read: bool
    ) -> None:
        """Count and time regular iterations of one batch and one pass each.

        ``seconds`` has each phase's times by iteration, ``samples`` is the total of all iterations,
        and ``read`` says whether the batches came from a loader.
        """
        count = len(ends)
        self.count(samples, count, read=read)
        self.timed_samples += samples
        self.timed_batches += count
        self.iteration.extend(spans([self.last_step, *ends], ends))
        for name, series in self.phases.items():
            if name != "data":
                series.extend(seconds[name])
        bins, by_data = self.data.extend(seconds["data"]), self.backward_by_data
        for bin_, backward in zip(bins, seconds["backward"]):  # noqa: B905 - Python 3.8
            by_data[bin_] = by_data.get(bin_, 0.0) + backward
        self.end(ends[-1], count, count)

    def add_on_device(self, seconds: dict[str, float]) -> None:
        """Add the GPU's times of an iteration, by phase."""
        for name, series in self.on_device.items():
            series.add(seconds[name])


def spans(begins: list[float], ends: list[float]) -> list[float]:
    """Seconds from each of ``begins`` to the end at the same index."""
    return list(map(sub, ends, begins))


def _series_by_phase(**histograms: Histogram) -> dict[str, Series]:
    """A series for each phase; ``histograms`` are those of some of them."""
    series = {name: Series() for name in PHASES}
    series.update(histograms)
    return series
