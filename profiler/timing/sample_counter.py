"""Counts the samples of iterations: those read from loaders, corrected by what models are given."""

from __future__ import annotations

import copy
from math import sqrt

from hops_profiler.timing.loss_rows import LossRows
from hops_profiler.timing.series import Series
from hops_profiler.timing.steps import Step, turns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Protocol

    from hops_profiler.timing.regular import RegularIterations, WarmUp

    class Batch(Protocol):
        """See :class:`hops_profiler.timing.passes.Batch`."""

        samples: int
        rows: int
        outputs: int
        loss_rows: int
        axes: set[int]
        unclear: bool
        adds_calls: bool
        repeats_rows: bool
        is_stage: bool
        graphless: Sequence[int]
        sources: set[tuple[int, int]]
        contents: set[int] | None
        is_made: bool
        wants_gradient: bool
        parameters: set[int]
        widths: set[tuple[int, ...]]
        place: Any
        read_axes: set[int]


MAX_SAMPLES_ERROR = 0.05
"""Largest relative error of samples, two standard deviations, where they vary."""

_NO_PASSES = 0, 0.0
"""Backward passes, and the samples they were seen to be over."""


class SampleCounter:
    """Samples and batches that an iteration trains on.

    Since the iteration began: ``fetches`` batches with ``samples`` were read. ``reads``: the
    previous iteration read a batch from a loader. ``ranks``: of how many this rank may read the
    batches. ``share``: among so many ranks it was seen to distribute them. ``factor``: samples
    trained on for each one read. ``unclear``: no loader is read, and what modules are given does
    not show the samples; or those of several loaders lead to steps of several optimizers.
    ``needs_next``: the iteration after an inspected one is to be inspected, too, as several
    optimizers step. ``varies``: it is not the same in all iterations. ``is_stage``: a backward pass
    began with gradients from elsewhere, or led to some.
    """

    def __init__(self, warmup: WarmUp) -> None:
        self._warmup = warmup
        self.ranks = self.share = 1
        self.factor = 1.0
        self.reads = self.unclear = self.varies = self.is_stage = False
        self._adds_calls = self._repeats_rows = False
        self.last_batch = 0
        self._inspections = Series()  # samples of the inspected iterations
        self._last_inspection = 0  # the iterations before it, and their samples if those not
        self._between = 0.0  # inspected are halfway between the inspected ones
        self._loss = LossRows()
        self._input = self._pass_input = 0.0
        self._previous_factor = 0.0
        # The leading optimizer's step before this iteration, and the iterations before that; how
        # many times its samples an iteration has.
        self._leading_step: tuple[int, Step] | None = None
        self._turns = 1.0
        self._knows_turns = self.needs_next = False
        self._skips = False  # batches, in the last inspected iteration
        self._prefetch: int | None = None  # samples of a batch read for the next iteration
        self.begin_iteration()

    def begin_iteration(self) -> None:
        self.fetches = self.samples = 0
        self._smallest = 0  # batch that was read
        self.has_inspection = False
        self._loader_is_empty = self._mixes_sizes = False
        self._rows = self._outputs = 0
        self._earlier_samples = 0.0  # of passes that led to other optimizers' steps
        self._earlier_steps = 0  # with passes of their own
        self._passes = self._switches = 0
        self._misses_pass = False
        self._step_batches: list[Batch] = []  # of passes since the last step
        self._steps: list[Step] = []  # since the iteration began, as far as they were inspected
        self._axes: set[int] = set()
        self._read_axes: set[int] = set()
        self._new_passes: tuple[int, float] = _NO_PASSES  # since the last step
        self._step_passes: tuple[int, float] = _NO_PASSES  # that led to the last step

    @property
    def is_even(self) -> bool:
        """True if each iteration so far trains on the batches that were read for it."""
        return self._prefetch is None and self.share == 1

    @property
    def is_inspected(self) -> bool:
        """True if an iteration was inspected so far."""
        return self._inspections.count > 0

    @property
    def shown_by_loss(self) -> bool:
        """True if samples vary, no loader shows them, and the first axis of each loss does."""
        return self.varies and not self.reads and self._loss.is_known

    def is_vague(self, iterations: int, counted: float) -> bool:
        """True if the samples of ``iterations`` vary so much that the inspected ones do not show
        their mean well enough yet, or so steadily that those ``counted`` are of smaller batches.
        """
        if not self.varies or self.reads:
            return False
        expected = self._between * iterations / max(1, self._last_inspection)
        if abs(expected - counted) > MAX_SAMPLES_ERROR * counted:
            return True
        inspections = self._inspections
        unseen = iterations - inspections.count
        if unseen <= 0:
            return False
        # Their mean is estimated by that of the inspected ones; both have an error.
        error = inspections.deviation * sqrt(1.0 / unseen + 1.0 / max(1, inspections.count))
        return 2.0 * error * unseen > MAX_SAMPLES_ERROR * inspections.mean * iterations

    @property
    def learnt(self) -> tuple[float, bool, Series, int, float]:
        """What inspections have shown so far."""
        inspections = copy.deepcopy(self._inspections)
        return self._input, self.varies, inspections, self._last_inspection, self._between

    @learnt.setter
    def learnt(self, state: tuple[float, bool, Series, int, float]) -> None:
        self._input, self.varies, self._inspections = state[:3]
        self._last_inspection, self._between = state[3:]

    def add_batch(self, samples: int) -> None:
        """A batch of ``samples`` was read; 0 if unknown."""
        self.fetches += 1
        self.samples += samples
        self._smallest = min(samples, self._smallest or samples)
        self.last_batch = samples or self.last_batch

    def switch_loader(self) -> None:
        """The last batch came from another loader than the one before."""
        self._switches += 1

    def end_loader(self) -> None:
        """The loader that was asked for a batch had none."""
        self._loader_is_empty = True

    def inspect(self, batch: Batch) -> None:
        """The backward pass that begins was seen to be over ``batch``."""
        self.has_inspection = True
        self._mixes_sizes |= batch.unclear
        self._rows += batch.rows
        self._outputs += batch.outputs
        self._axes |= batch.axes
        self._read_axes |= batch.read_axes
        self.is_stage |= batch.is_stage
        # Steps of an episode count one by one, and so may those of several episodes together.
        self._adds_calls |= batch.adds_calls
        self._repeats_rows |= batch.repeats_rows
        self._mixes_sizes |= self._adds_calls and self._repeats_rows
        before = self._sum_of_batches()
        self._step_batches.append(batch)
        self._pass_input = self._sum_of_batches() - before
        self._loss.learn(self._passes, self._pass_input, batch.loss_rows)

    def clear_gradients(self, parameters: set[int]) -> None:
        """Gradients were set to zero: passes of an attack, which wants those of the inputs, trained
        nothing if they led to no others. Those of the parameters may have been kept elsewhere.
        """
        kept = [
            batch
            for batch in self._step_batches
            if not (batch.wants_gradient and batch.parameters and batch.parameters <= parameters)
        ]
        dropped = len(self._step_batches) - len(kept)
        if dropped:
            self._step_batches = kept
            self._new_passes = self._new_passes[0] - dropped, self._sum_of_batches()
            self._loss.give_up()

    def _sum_of_batches(self) -> int:
        """Samples of the passes since the last step.

        Passes that one place of the code begins accumulate a gradient. Those of several are terms
        of a loss: over the same samples, if they are given the same memory; over none, if they are
        given what a model made, beside real samples, or what lies between both, or change what is
        given alone. Else either may be, where they are over equally many. Passes of several stages
        of a model are over the same samples.
        """
        stages: dict[frozenset[int], int] = {}
        for batch in self._step_batches:
            key = frozenset(batch.parameters if batch.is_stage else ())
            stages[key] = stages.get(key, 0) + batch.samples
        are_apart = len(frozenset().union(*stages)) == sum(map(len, stages))
        if len(stages) > 1 and all(stages) and are_apart:
            return max(stages.values())
        places: dict[Any, int] = {}  # of code: samples of its passes
        sources: set[tuple[int, int]] = set()
        total = made = 0
        if self.fetches:
            return sum(batch.samples for batch in self._step_batches)
        trains = any(batch.parameters for batch in self._step_batches)
        for batch in self._step_batches:
            samples = batch.samples
            if trains and batch.wants_gradient and not batch.parameters:
                continue
            if batch.is_made:
                made += samples
                continue
            others = [count for place, count in places.items() if place != batch.place]
            if others and samples:
                known = bool(batch.sources) and batch.sources <= sources
                if known or (made and batch.wants_gradient):
                    continue
                self._mixes_sizes |= samples in others
            places[batch.place] = places.get(batch.place, 0) + samples
            sources |= batch.sources
            total += samples
        return total or made

    def read_loss(self, rows: int) -> None:
        """The loss of the backward pass that begins has so many ``rows``."""
        samples = self._loss.samples(self._passes, rows)
        self.has_inspection, self._pass_input = True, samples or 0
        self._misses_pass |= samples is None

    def add_pass(self, *, in_step: bool) -> None:
        """A backward pass has ended. All passes ``in_step``, of a closure as LBFGS calls it, are
        over the same samples.
        """
        passes, samples = self._new_passes
        self._passes += 1
        if in_step:
            self._new_passes = 1, max(samples, self._pass_input)
        else:
            self._new_passes = passes + 1, samples + self._pass_input
        self._pass_input = 0.0

    def begin_step(self) -> None:
        """The passes since the last step lead to the one that begins."""
        self._earlier_samples = max(self._earlier_samples, self._step_passes[1])
        self._earlier_steps += self._step_passes[0] > 0
        self._step_passes = self._new_passes
        self._new_passes = _NO_PASSES
        if self.has_inspection:
            self._steps.append(Step(self._step_batches, self._step_passes[1]))
        self._step_batches = []

    def attribute_prefetched_batch(self, regular: RegularIterations, passes: int) -> None:
        """Count a batch read ahead for the iteration that trained on it.

        A loop that is a batch ahead of itself (accelerate's loaders) reads none in the last
        iteration of an epoch, and two in the first of the next.
        """
        fetches, prefetch = self.fetches, self._prefetch
        self._prefetch = None
        if prefetch is not None and fetches > 1:
            self.fetches, self.samples = fetches - 1, max(0, self.samples - prefetch)
        elif self._loader_is_empty and regular.lacks_one(passes, fetches):
            self.fetches, self.samples = fetches + 1, self.samples + self.last_batch
            self._prefetch = self.last_batch

    @property
    def expected_samples(self) -> float:
        """Samples of an iteration that reads no batch and is not inspected."""
        return (self._inspections.mean if self.varies else self._input) or self.last_batch

    def end_iteration(self, iterations: int, earlier: int) -> tuple[float, float]:
        """Samples and batches of the iteration that ends after ``earlier`` ones, or of several
        counted as one.

        Those that were read for it; if none were, the inputs of its forward passes, as inspected
        now, or by then, on average; else the batch that was read once, before the loop.
        """
        passes = max(self._step_passes[0], self._new_passes[0], iterations)
        if self.has_inspection and not self._misses_pass:
            self._learn_input(iterations, earlier)
        self.reads = self.fetches > 0
        if not self.fetches:
            is_seen = self.has_inspection and not self._misses_pass
            samples = (is_seen and self._input) or self.expected_samples
            return samples * max(1, iterations), passes
        passes = min(passes, self.fetches)  # a GAN's two are over one batch
        if self.has_inspection:
            skips, self._skips = self._skips, self._is_skipped()
            self.unclear = self.unclear or self._is_shared_out() or (skips and self._skips)
            if self.ranks > 1:
                # One rank may read for all of them, and hand out what it has read.
                distributes = self._input * self.ranks == self.samples
                self.share = self.ranks if distributes else 1
            self._compare_with_input()
        samples = self.samples / self.share * self.factor
        return samples, min(passes, self.fetches / self.share)

    def _learn_input(self, iterations: int, earlier: int) -> None:
        # The leading optimizer's pass may have no model in it, as a temperature's. An inspection
        # that saw no call of a model at all says nothing; an earlier one still holds.
        samples = max(self._step_passes[1], self._new_passes[1])
        samples = samples or self._earlier_samples or self._input
        if iterations == 1 and not self.fetches:
            samples *= self._turns_of_steps(earlier)
        self.varies = self.varies or 0 < self._input != samples
        if earlier < self._last_inspection:  # those that it was among are forgotten
            self._last_inspection, self._between = 0, 0.0
        halfway = (samples + (self._input or samples)) / 2.0
        self._between += halfway * (earlier - self._last_inspection)
        self._last_inspection = earlier
        self._input = samples
        self._inspections.add(samples)
        self.unclear = self.unclear or (self._mixes_sizes and not self.fetches)

    @property
    def leading_step(self) -> Step | None:
        """The leading optimizer's step that was inspected last."""
        return None if self._leading_step is None else self._leading_step[1]

    def _turns_of_steps(self, earlier: int) -> float:
        """How many times the leading optimizer's samples the iteration has that comes after
        ``earlier`` others. It begins with the step that ended the one before.
        """
        steps, self._steps = self._steps, []
        before, self._leading_step = self._leading_step, (earlier, steps[-1]) if steps else None
        if len(steps) < 2:
            return self._turns
        if before is None or before[0] != earlier - 1:
            self.needs_next = not self._knows_turns
            return self._turns
        self.needs_next, self._knows_turns = False, True
        number = turns([before[1], *steps[:-1]])
        if number is None:
            self._mixes_sizes = True
        elif number != self._turns:
            ratio, self._turns = number / self._turns, number
            self._warmup.scale_samples(ratio)
            self._between *= ratio
            self._input *= ratio
            self._inspections = Series()
            self._inspections.add(self._input)
        return self._turns

    def _is_shared_out(self) -> bool:
        """Whether batches of several loaders lead to steps of several optimizers, none of which is
        over all that was read.
        """
        most = max(self._earlier_samples, self._step_passes[1], self._new_passes[1])
        return self._switches > 1 and self._earlier_steps > 0 and 0 < most < self.samples

    def _is_skipped(self) -> bool:
        """Whether several batches of one loader were read, and each pass was over one of fewer."""
        passes, batch = self._step_passes[0], self._smallest / self.share
        is_less = 0 < passes < self.fetches and 0 < self._rows == passes * batch
        return is_less and self._switches <= 1

    def _compare_with_input(self) -> None:
        """Set the ratio of samples trained on to samples read, once two inspections agree on it.

        A loader may yield the rows of several steps at a time (the model gets 1/k of them), or
        batches that its data set made (the model gets k for each "sample"). Any other difference is
        one of layout: packed texts, patches, nodes of graphs.
        """
        read, given_rows = self.samples / self.share, max(self._step_passes[1], self._new_passes[1])
        passes = max(self._step_passes[0], self._new_passes[0])
        factor = 1.0
        # A second axis as long as the batch is the batch's own: the first one is time.
        if given_rows > passes and read and read / self.fetches not in self._axes:
            is_part = read % given_rows == 0 and self._rows < read
            # A pass over a whole batch is not over a slice: other batches are trained on elsewhere.
            is_part = is_part and given_rows < passes * self._smallest / self.share
            independent = self._rows == self._outputs == given_rows
            has_axis = not self._read_axes or given_rows // passes in self._read_axes
            ready_made = read == self.fetches and independent and given_rows % read == 0
            ready_made = ready_made and has_axis
            if is_part or ready_made:
                factor = given_rows / read
        if factor == self._previous_factor and factor != self.factor:
            self._warmup.scale_samples(factor / self.factor)
            self.factor = factor
        self._previous_factor = factor
