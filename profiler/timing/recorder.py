"""From moments to iterations: what the training loop did between two optimizer steps.

Knows nothing of PyTorch and no clock: hooks call it with what they saw and when.
"""

from __future__ import annotations

from hops_profiler.timing.counts import PHASES, Counts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class Device(Protocol):
        """A second clock, that of a GPU: told which phase ends now, answers later."""

        def mark(self, phase: str) -> None: ...
        def cut(self, *, keep: bool) -> None: ...
        def read(self) -> list[dict[str, float]]: ...


PREFETCH = 2
"""More batches than backward passes by this many still is training that reads ahead; beyond it
the loop evaluated in between, which is not an iteration's time."""

DEPOSED = 10
"""Steps of another optimizer, without one of the leading optimizer, that make it the leader."""

UNSEEN = 32
"""Backward passes without any step after which a backward pass ends an iteration: steps that
were compiled into the user's graph cannot be heard."""

DEEPEST = 8
"""Phases within each other; more are steps that an exception ended without our hearing of it."""

BEFORE = {"data": "rest", "backward": "forward", "update": "update"}
"""What the time was that ends where a phase begins. Unscaling and clipping are of the update."""


_BACKWARD = 0
"""Stands for an optimizer where backward passes lead; no object has this id."""


class Recorder:
    """Cuts the time of one process into iterations and phases. Times are seconds of one clock.

    An iteration ends with a step of the leading optimizer: the first that stepped. Steps of
    others (a GAN's, or one for each layer) belong to its iterations. Phases may lie in each
    other: time is the innermost's.

    Where steps cannot be heard, each backward pass ends an iteration. While nothing ever
    stepped, a batch ends the iteration of the one before: inference, with data and forward only
    (section 3.5 of the paper).
    """

    def __init__(self, device: Device | None = None) -> None:
        self.counts = Counts()
        self.batch = 0
        self._ahead = 0
        self._device = device
        self._leader: int | None = None
        self._others: dict[int, int] = {}
        self._within: list[str] = []
        self._mark = 0.0
        self._begin_iteration()

    def enter(self, phase: str, now: float) -> None:
        """``data``, ``backward`` or ``update`` begins."""
        if len(self._within) > DEEPEST:
            self._within.clear()
        if self._within and phase != "backward":
            before = self._within[-1]
        elif phase == "update" and not self._backwards:
            before = "rest"
        else:
            # Within a step, too: a closure, such as Lightning's, runs the forward pass there.
            before = BEFORE[phase]
        self._pass(before, now)
        self._within.append(phase)

    def leave(self, now: float) -> bool:
        """The innermost phase ends. True: and an iteration with it."""
        if not self._within:
            return False
        phase = self._within.pop()
        self._pass(phase, now)
        if phase != "backward":
            return False
        self._backwards += 1
        if self._leader is None and self._backwards == UNSEEN:
            self._leader = _BACKWARD
        return self._leader == _BACKWARD and self.stepped(_BACKWARD, now)

    def fetched(self, samples: int, *, new_source: bool = False) -> bool:
        """A batch of ``samples`` came (0: none could be seen). True: it ended an iteration.

        ``new_source``: not from where the last one came from.
        """
        if self._within:
            return False  # a data set that reads through a loader of its own
        ended = False
        if self._leader is None:
            self._ahead = 0 if new_source else self._ahead + self._samples
        if self._leader is None and self._fetches and not self._backwards:
            self.counts.inference = True
            self._seconds["forward"], self._seconds["rest"] = self._seconds["rest"], 0.0
            self._end_iteration(self._mark)
            ended = True
        self._fetches += 1
        self._samples += samples
        self.batch = samples or self.batch
        return ended

    def stepped(self, optimizer: int, now: float) -> bool:
        """Note a step of ``optimizer`` (any key of it). True: it ended an iteration."""
        if self.counts.inference:
            # What came before was a trial, but for batches that the loop read ahead.
            self.counts = Counts()
            self.counts.samples = self._ahead
        if optimizer != self._leader and self._leader is not None:
            self._others[optimizer] = self._others.get(optimizer, 0) + 1
            if self._others[optimizer] < DEPOSED:
                return False
        self._leader = optimizer
        self._others.clear()
        self._end_iteration(now)
        return True

    def _begin_iteration(self) -> None:
        self._fetches = self._samples = self._backwards = 0
        self._seconds = dict.fromkeys(PHASES, 0.0)

    def _pass(self, phase: str, now: float) -> None:
        self._seconds[phase] += now - self._mark
        self._mark = now
        if self._device is not None:
            self._device.mark(phase)

    def _end_iteration(self, now: float) -> None:
        trained = max(1, self._backwards)
        whole = self._fetches <= trained + PREFETCH
        samples = self._samples if whole else trained * self.batch
        timed = self.counts.add(self._seconds, samples, trained, now, whole=whole)
        self._begin_iteration()
        if self._device is not None:
            self._device.cut(keep=timed)
            for seconds in self._device.read():
                self.counts.add_on_device(seconds)
