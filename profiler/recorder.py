"""From moments to iterations: what the training loop did between two optimizer steps.

Knows nothing of PyTorch and no clock: hooks call it with what they saw and when.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hops_profiler.series import Series

WARMUP = 3
"""Iterations that are counted and not timed: allocators, autotuning and compilers settle."""

PREFETCH = 2
"""More batches than backward passes by this many still is training that reads ahead; beyond it
the loop evaluated in between, which is not an iteration's time."""

PHASES = ("data", "forward", "backward", "update", "rest")


@dataclass
class _Interval:
    """What happened since the last step of the leading optimizer."""

    fetches: int = 0
    samples: int = 0
    backwards: int = 0
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))


class Recorder:
    """Counts everything, times what is an iteration. All times are seconds of one clock.

    An iteration ends with a step of the leading optimizer: the first that stepped. Others (a
    GAN's) belong to its iterations, unless the leader has not stepped for ten of theirs.
    """

    def __init__(self) -> None:
        self.iterations = 0
        self.samples = 0
        self.timed_iterations = 0
        self.timed_samples = 0
        self.interrupted = 0
        self.iteration = Series()
        self.phases = {name: Series() for name in PHASES}
        self.first_step: float | None = None
        self.last_step = 0.0
        self._leader: int | None = None
        self._others = 0
        self._batch = 0
        self._mark = 0.0
        self._now = _Interval()

    @property
    def seconds(self) -> float:
        """Wall time of the timed iterations."""
        return self.iteration.sum

    @property
    def batch(self) -> int:
        """Samples of the latest batch; 0 while none could be seen."""
        return self._batch

    def fetched(self, begin: float, end: float, samples: int) -> None:
        """The loop waited for a batch of ``samples`` (0: no tensor was seen in it)."""
        self._pass("rest", begin)
        self._pass("data", end)
        self._now.fetches += 1
        self._now.samples += samples
        self._batch = samples or self._batch

    def backward(self, begin: float, end: float) -> None:
        self._pass("forward", begin)
        self._pass("backward", end)
        self._now.backwards += 1

    def step_begins(self, at: float) -> None:
        """Between backward pass and step lie unscaling and clipping: they are of the update."""
        self._pass("update" if self._now.backwards else "rest", at)

    def step_ends(self, optimizer: int, at: float) -> bool:
        """Note a step of ``optimizer`` (any key of it); True when it ended an iteration."""
        self._pass("update", at)
        if optimizer != self._leader:
            self._others += 1
            if self._leader is not None and self._others < 10:
                return False
            self._leader = optimizer
        self._others = 0
        self._end_iteration(at)
        return True

    def _pass(self, phase: str, now: float) -> None:
        self._now.seconds[phase] += now - self._mark
        self._mark = now

    def _end_iteration(self, now: float) -> None:
        done, self._now = self._now, _Interval()
        trained = max(1, done.backwards)
        evaluated = done.fetches > trained + PREFETCH
        samples = trained * self._batch if evaluated else done.samples
        self.iterations += 1
        self.samples += samples
        if self.first_step is None:
            self.first_step = now
        if evaluated:
            self.interrupted += 1
        elif self.iterations > WARMUP:
            self.timed_iterations += 1
            self.timed_samples += samples
            self.iteration.add(now - self.last_step)
            for name, series in self.phases.items():
                series.add(done.seconds[name])
        self.last_step = now
