"""Turns events into iterations: what the training loop did between two optimizer steps.

Knows neither PyTorch nor a clock: hooks call it with what they saw and when.
"""

from __future__ import annotations

from collections import deque
from math import sqrt

from hops_profiler.timing.counts import PHASES, WARMUP, Counts, between
from hops_profiler.timing.series import Series
from hops_profiler.timing.usual import Usual

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    class Device(Protocol):
        """A second clock, the GPU's: gets the end of each phase now, has the times later."""

        exact: bool
        marks: list[Any]

        def mark(self, phase: str) -> None: ...
        def cut(self, *, keep: bool, iterations: int = 1) -> bool: ...
        def begin(self) -> None: ...
        def read(self) -> list[tuple[float | None, dict[str, float]]]: ...

    class Batch(Protocol):
        """See :class:`hops_profiler.timing.passes.Batch`."""

        samples: int
        rows: int
        outputs: int
        axes: set[int]
        unclear: bool

    Timed = tuple[dict[str, float], float, float]
    """Seconds by phase, samples and batches of an iteration."""


DEPOSED = 10
"""Steps of another optimizer, without one of the leading optimizer, that make it the leader."""

UNSEEN = 32
"""Backward passes without any step after which a backward pass ends an iteration: steps that
were compiled into the user's graph, or of no optimizer of PyTorch's, cannot be heard."""

BARE = 10
"""Steps in a row without a backward pass after which such a step ends an iteration: gradients that
come from elsewhere (`torch.autograd.grad`)."""

RARE = 16
"""An evaluation is at least so many iterations after the one before; rollouts and generated texts
that a step trains on come more often."""

VAGUE = 0.05
"""Largest relative error of samples, one standard deviation, where they vary."""

DEEPEST = 8
"""Nesting depth of phases; deeper ones are steps ended by an exception that no hook saw."""

_NO_PASSES = 0, 0.0
"""Backward passes, and the samples they were seen to be over."""

_NOTHING = dict.fromkeys(PHASES, 0.0)

_BACKWARD = 0
"""Stands for an optimizer where backward passes lead; no object has this id."""


class Recorder:
    """Cuts the time of one process into iterations and phases. Times are seconds of one clock.

    An iteration is a forward pass that leads to a backward pass that leads to a step of the leading
    optimizer: the first that stepped. Steps of others (a GAN's, or one for each layer) belong to
    its iterations, and so does a step that no backward pass led to. Phases may lie in each other:
    time is the innermost's.

    Where steps cannot be heard, each backward pass ends an iteration. As long as nothing ever went
    backward or stepped, a batch ends the iteration of the one before: inference, with data and
    forward only (section 3.5 of the paper). The first training forgets it.

    A loop may be far ahead of its GPU, at first as fast as it can queue work. Where the ``device``
    times each iteration (``exact``), one counts as timed once the GPU has done it, with its time.

    ``counts``: of all iterations so far. ``reads``: the previous iteration read a batch from a
    loader. ``unclear``: no loader is read, and what modules are given does not tell the samples.
    ``varies``: it is not the same in all iterations. ``shares_steps``: other threads step, too.
    """

    def __init__(self, device: Device | None = None) -> None:
        self.trains = False
        self.ranks = 1
        self._device = device
        self._queued: deque[Timed | None] = deque()
        self._done: Timed | None = None
        self.counts = Counts()
        self._usual = Usual()
        self._early: list[tuple[int, int, int, float, float]] = []
        self._leader: int | None = None
        self._evaluations = 0
        self._evaluates = False
        self._others: dict[int, int] = {}
        self._within: list[str] = []
        self._mark = self._now = 0.0
        self._bare = 0
        self._looked = False
        self._given = self._input = 0.0
        self.unclear = self.varies = self.shares_steps = False
        self._seen_inputs = Series()
        self._last_batch = 0
        self._ran_out = False
        self._ahead: int | None = None
        self._share = 1
        self._factor = 1.0
        self._last_factor = 0.0
        self._steps_elsewhere = 0
        self._learners_differ = False
        self._last_graphless = -RARE
        self._closure_steps = 0
        self.reads = False
        self._leading: tuple[int, float] = _NO_PASSES
        self._led: tuple[int, float] = _NO_PASSES
        self._begin_iteration()

    @property
    def samples(self) -> float:
        """All samples trained on, for the first iterations by what is known now."""
        return self.counts.samples + sum(samples for samples, _ in self._first())

    @property
    def batches(self) -> float:
        """Like :attr:`samples`, for batches."""
        return self.counts.batches + sum(batches for _, batches in self._first())

    @property
    def vague(self) -> bool:
        """True where the samples of iterations vary so much that those whose inputs were inspected
        do not show the mean well enough yet.
        """
        if not self.varies or self.reads:
            return False
        inputs = self._seen_inputs
        unseen = 1.0 - inputs.count / max(1, self.counts.iterations)
        return unseen * inputs.deviation > VAGUE * inputs.mean * sqrt(inputs.count)

    @property
    def fetches(self) -> float:
        """Batches read for each iteration, those for other ranks included."""
        return self.batches * self._share / self.counts.iterations

    @property
    def steady(self) -> bool:
        """True while an optimizer's steps end the iterations."""
        return self.trains and self._leader != _BACKWARD

    @property
    def marking(self) -> bool:
        """True while the device's clock times this iteration."""
        return self._device is not None and bool(self._device.marks)

    def present(self) -> None:
        """All is known up to now, the end of an iteration: the device's clock may time the next."""
        if self._device is not None:
            self._device.begin()
            self.read_device()

    def read_device(self) -> None:
        """Count what the device has done meanwhile."""
        if self._device is None:
            return
        for took, seconds in self._device.read():
            self.counts.add_on_device(seconds)
            if self._device.exact:
                if took is not None and self._done is not None:
                    self.counts.time(took, *self._done)
                self._done = self._queued.popleft()

    @property
    def evaluating(self) -> bool:
        """True if a model was put into the mode for that since the last iteration."""
        return self._evaluations > 0

    @property
    def within(self) -> bool:
        """True while a phase lasts: a step in a backward pass, or one in another's closure."""
        return bool(self._within)

    def usual(self, events: list[Any], at: int) -> int:
        """Process the usual iterations in ``events``, methods and their arguments in turn, from
        ``at`` on: a batch, a pass and a step each. Returns how many entries they were.

        The result is the same as if told one by one, which takes three times as long.
        """
        if not self._can_be_usual():
            return 0
        end, length = at, USUAL_LENGTH
        while events[end : end + length : 2] == _USUAL and events[end + length - 1] == self._leader:
            end += length
        if end == at:
            return 0
        told = [events[at + part : end : length] for part in range(1, length, 2)]
        asked, came, sizes, began, ended, _, steps, _ = told
        seconds = {
            "data": between(asked, came),
            "forward": between(came, began),
            "backward": between(began, ended),
            "update": between(ended, steps),
            "rest": between([self._mark, *steps], asked),
        }
        self.counts.usual(seconds, steps, sum(sizes) * self._factor)
        self._usual.confirmed(len(steps), sizes[-1] * self._factor)
        self._last_batch = next(filter(None, reversed(sizes)), self._last_batch)
        self._mark = self._now = steps[-1]
        self.reads, self._bare = True, 0
        self._others.clear()
        if self._device is not None:
            self._device.cut(keep=True, iterations=len(steps))
        return end - at

    def _can_be_usual(self) -> bool:
        """True where one has just ended, and the next is timed if it is a usual one."""
        begun = self._fetches or self._passes or self._evaluations or self._within or self._looked
        begun = begun or self._graphless
        return (
            self.counts.iterations >= WARMUP
            and self._mark == self.counts.last_step
            and not (begun or self._early or self.marking)
            and self._ahead is None
            and self._share == 1
            and self._usual.is_known(1, 1, 0)
        )

    def begin_data(self, now: float) -> None:
        """The loop asks for a batch."""
        self._begin("data", self._within[-1] if self._within else "rest", now)

    def begin_backward(self, now: float) -> None:
        """A backward pass begins. Within a step, too, what was before is a forward pass: a
        closure's, such as Lightning's."""
        self._begin("backward", "forward", now)

    def begin_update(self, now: float) -> None:
        """An optimizer's step begins. Unscaling and clipping before it belong to the update."""
        before = self._within[-1] if self._within else "update" if self._passes else "rest"
        self._leading, self._led = self._led, _NO_PASSES
        self._begin("update", before, now)

    def abandoned(self, _: object = None) -> None:
        """A step has been left by an exception, and with it whatever phase it was in."""
        self._within.clear()

    def _begin(self, phase: str, before: str, now: float) -> None:
        if len(self._within) > DEEPEST:
            self._within.clear()
        self._seconds[before] += now - self._mark
        self._mark = now
        if self._device is not None and self._device.marks:
            self._device.mark(before)
        self._within.append(phase)

    def looked(self, batch: Batch) -> None:
        """The backward pass that begins was seen to be over ``batch``."""
        self._looked, self._given = True, batch.samples
        self._mixed |= batch.unclear
        self._rows += batch.rows
        self._outputs += batch.outputs
        self._axes |= batch.axes

    def leave(self, now: float) -> bool:
        """The innermost phase ends. True if an iteration ends with it."""
        self._now = now
        if not self._within:
            return False
        phase = self._within.pop()
        self._seconds[phase] += now - self._mark
        self._mark = now
        if self._device is not None and self._device.marks:
            self._device.mark(phase)
        if phase != "backward":
            return False
        self._passes += 1
        passes, samples = self._led
        if self._within:
            # A closure's passes, as LBFGS asks for them, are all over the same samples.
            self._led = 1, max(samples, self._given)
        else:
            self._led = passes + 1, samples + self._given
        self._given = 0.0
        if self._leader is None and self._passes == UNSEEN:
            self._leader = _BACKWARD
            self._closure_steps = int(bool(self._within))
            return self._end_iteration(now, UNSEEN)
        if self._leader != _BACKWARD:
            return False
        self._leading, self._led = self._led, _NO_PASSES
        return self._end_iteration(now)

    def fetched(self, samples: int) -> bool:
        """A batch of ``samples`` arrived (0: unknown). True if it ended an inference iteration."""
        if self._within:
            return False  # a data set that reads through a loader of its own
        ended = False
        if self._fetches and not self.trains and not self._passes:
            self._seconds["forward"], self._seconds["rest"] = self._seconds["rest"], 0.0
            counts = self.counts
            counts.inference = ended = True
            counts.count(self._samples, 1, read=True)
            counts.end(self._mark, 1)
            if counts.iterations > WARMUP:
                counts.time(counts.took, self._seconds, self._samples, 1)
            self._begin_iteration()
        self._fetches += 1
        self._samples += samples
        self._last_batch = samples or self._last_batch
        return ended

    def ran_out(self, _: object = None) -> None:
        """The loader that was asked had no further batch."""
        if not self._within:  # else a data set's own loader
            self._ran_out = True

    def evaluates(self, _: object = None) -> None:
        """A model was put into the mode in which it is evaluated."""
        self._evaluations += 1

    def ran_without_graph(self, evaluation: bool) -> None:
        """The loop spent more than an iteration's time in code that builds no graph.

        ``evaluation``: the training went on without this code, so it needs nothing that it makes.
        """
        if not self._within:
            self._graphless = True
            if evaluation:
                self._evaluates = True

    def stepped(self, optimizer: int) -> bool:
        """``optimizer`` (any key for it) has stepped. True if an iteration ended with it."""
        now = self._now
        if self._leader == _BACKWARD:
            if self._closure_steps == 1:
                self._closure_steps = 2
                return False  # its passes may be all that there will be: they stay iterations
            self._begin_anew()
            if not self._passes:  # they have all been counted
                self._leader = optimizer
                self.counts.end(now, max(1, self._closure_steps))
                return True
        iterations = 1
        if optimizer != self._leader and self._leader is not None:
            iterations = self._others[optimizer] = self._others.get(optimizer, 0) + 1
            if iterations < DEPOSED:
                return False
        if self._passes or "backward" in self._within or not self.counts.passes:
            self._bare = 0
        elif self._bare < BARE:
            self._bare += 1
            return False
        self._leader = optimizer
        self._others.clear()
        return self._end_iteration(now, iterations)

    def stepped_elsewhere(self, optimizer: int) -> None:
        """``optimizer`` has stepped in another thread, after a backward pass there.

        Where it is another than the leading one, that learner may have batches of another size.
        """
        if self._leader == _BACKWARD:
            return
        self._steps_elsewhere += 1
        self.shares_steps = True
        self._learners_differ |= self._leader not in (None, optimizer)

    def _begin_anew(self) -> None:
        """What was taken for iterations were gradient accumulations of a single one."""
        samples, batches = self.samples, self.batches
        if self._closure_steps:  # each was over the same samples
            samples *= self._closure_steps / max(1, self.counts.iterations)
            batches = self._closure_steps
        self.counts = Counts()
        self.counts.count(samples, batches, read=self.reads)
        self._usual, self._early, self._leader = Usual(), [], None
        self._queued, self._done = deque([None] * len(self._queued)), None

    def _begin_iteration(self) -> None:
        self._fetches = self._samples = self._passes = self._evaluations = 0
        self._leading = self._led = _NO_PASSES
        self._looked = self._ran_out = self._graphless = self._evaluates = False
        self._mixed = False
        self._rows = self._outputs = 0
        self._axes: set[int] = set()
        self._seconds = _NOTHING.copy()

    def _end_iteration(self, now: float, iterations: int = 1) -> bool:
        if not self.trains:
            self.trains = True
            if self.counts.inference:  # a validation, before training began
                self.counts = Counts()
        self._lay_by()
        fetches = self._fetches
        samples, batches = self._trained_on(iterations)
        self.reads = fetches > 0
        learners, self._steps_elsewhere = 1 + self._steps_elsewhere, 0
        if not fetches:  # what other threads read has been counted
            samples, batches = samples * learners, batches * learners
            self.unclear = self.unclear or self._learners_differ
        timed = self._judge(now, iterations, samples, batches, learners)
        self._time(self._seconds, samples, batches, learners, timed=timed)
        self._begin_iteration()
        return True

    def _time(
        self,
        seconds: dict[str, float],
        samples: float,
        batches: float,
        learners: int,
        *,
        timed: bool,
    ) -> None:
        """Time the iteration that ends if it is to be ``timed``: now, or once the device has done
        it. Of those for which the device has no room, nothing is known.
        """
        exact = self._device is not None and self._device.exact and self.marking
        if self._device is not None and self._device.cut(keep=timed) and exact:
            self._queued.append((seconds, samples, batches))
        if timed and not exact:
            if learners > 1:
                seconds = {phase: time / learners for phase, time in seconds.items()}
            for _ in range(learners):
                took = self.counts.took / learners
                self.counts.time(took, seconds, samples / learners, batches / learners)

    def _lay_by(self) -> None:
        """Attribute a batch read ahead to the iteration that trained on it.

        A loop that is a batch ahead of itself (accelerate's loaders) reads none in the last
        iteration of an epoch, and two in the first of the next.
        """
        fetches, ahead = self._fetches, self._ahead
        self._ahead = None
        if ahead is not None and fetches > 1:
            self._fetches, self._samples = fetches - 1, max(0, self._samples - ahead)
        elif self._ran_out and self._usual.lacks_one(self._passes, fetches):
            self._fetches, self._samples = fetches + 1, self._samples + self._last_batch
            self._ahead = self._last_batch

    def _judge(
        self, now: float, iterations: int, samples: float, batches: float, learners: int
    ) -> bool:
        """Count the iteration that ends. True if it is to be timed: it was a usual one."""
        counts, passes, fetches = self.counts, self._passes, self._fetches
        known = counts.iterations
        if self._graphless:
            # What began with the training may be a rollout where there is no loader.
            rare = fetches > 0 and known - self._last_graphless >= RARE
            self._evaluations += self._evaluates or rare
            self._last_graphless = known
        # The first one may hold whatever came before.
        usual = known > 0 and self._usual.holds(passes, fetches, self._evaluations)
        if usual and (learners == 1 or fetches):
            self._usual.trained(passes, samples, batches)
        if known < WARMUP:
            self._early.append((passes, fetches, self._evaluations, samples, batches))
        else:
            if self._early:
                for earlier in self._first():
                    counts.count(*earlier, read=fetches > 0)
                self._early = []
            if not usual:
                trained_on = self._usual.expected(passes, batches) or (samples, batches)
            else:
                trained_on = samples, batches
            counts.count(*trained_on, read=fetches > 0)
        counts.end(now, iterations + learners - 1, passes)
        if not usual and known > 0:
            counts.interrupted += 1
        return usual and known >= WARMUP and iterations == 1

    def _trained_on(self, iterations: int) -> tuple[float, float]:
        """Samples and batches of the iteration that ends, or of several that were taken for one.

        Those that were read for it; if none were, the inputs of its forward passes, as seen now or
        last; else the batch that was read once, before the loop.
        """
        passes = max(self._leading[0], self._led[0], iterations)
        if self._looked:
            # A look that saw no call of a model says nothing; an earlier one still holds.
            before, self._input = self._input, max(self._leading[1], self._led[1]) or self._input
            self.varies = self.varies or 0 < before != self._input
            self._seen_inputs.add(self._input)
            self.unclear = self.unclear or (self._mixed and not self._fetches)
        if not self._fetches:
            one = self._input or self._last_batch
            return one * max(1, iterations), passes
        passes = min(passes, self._fetches)  # a GAN's two are over one batch
        if self._looked and self.ranks > 1:
            # One rank may read for all of them, and hand out what it has read.
            told = self._input * self.ranks == self._samples
            self._share = self.ranks if told else 1
        if self._looked:
            self._compare_with_input()
        samples = self._samples / self._share * self._factor
        return samples, min(passes, self._fetches / self._share)

    def _compare_with_input(self) -> None:
        """Set the ratio of samples trained on to samples read, once two looks agree on it.

        A loader may yield the rows of several steps at a time (the model gets 1/k of them), or
        batches that its data set made (the model gets k for each "sample"). Any other difference is
        one of layout: packed texts, patches, nodes of graphs.
        """
        read, given = self._samples / self._share, max(self._leading[1], self._led[1])
        passes = max(self._leading[0], self._led[0])
        factor = 1.0
        # A second axis as long as the batch is the batch's own: the first one is time.
        if given > passes and read and read / self._fetches not in self._axes:
            fewer = read % given == 0 and self._rows < read
            independent = self._rows == self._outputs == given
            ready_made = read == self._fetches and independent and given % read == 0
            if fewer or ready_made:
                factor = given / read
        if factor == self._last_factor and factor != self._factor:
            change, self._factor = factor / self._factor, factor
            self._early = [
                (passes, fetches, evaluations, samples * change, batches)
                for passes, fetches, evaluations, samples, batches in self._early
            ]
        self._last_factor = factor

    def _first(self) -> list[tuple[float, float]]:
        """Samples and batches of the first iterations, by what is usual as is known by now."""
        return [
            (samples, batches)
            if samples
            and (self._usual.is_known(passes, fetches, evaluations) or self._usual.reads(fetches))
            else self._usual.expected(passes, batches) or (samples, batches)
            for passes, fetches, evaluations, samples, batches in self._early
        ]


_USUAL = [
    Recorder.begin_data,
    Recorder.leave,
    Recorder.fetched,
    Recorder.begin_backward,
    Recorder.leave,
    Recorder.begin_update,
    Recorder.leave,
    Recorder.stepped,
]

USUAL_LENGTH = 2 * len(_USUAL)
"""Entries of a usual iteration among the events: methods and their arguments."""
