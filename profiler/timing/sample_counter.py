"""Counts the samples of iterations: those read from loaders, corrected by the models' inputs."""

from __future__ import annotations

import copy
from math import sqrt

from hops_profiler.timing.loss_rows import LossRows
from hops_profiler.timing.series import Series
from hops_profiler.timing.steps import Step, trains_on, turns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Protocol

    from hops_profiler.timing.regular import RegularIterations, WarmUp

    class Batch(Protocol):
        """See :class:`hops_profiler.timing.passes.Batch`."""

        samples: int
        rows: int
        unused_rows: int
        own_rows: int
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
        read_storages: set[int]


MAX_SAMPLES_ERROR = 0.05
"""Maximum relative error (two standard deviations) of the samples if they vary."""

MIN_REUSES = 3
"""Number of batches that were read after several steps on the one before, which shows a habit."""

_NO_PASSES = 0, 0.0
"""Number of backward passes, and the samples that inspection showed for them."""


class SampleCounter:
    """Counts the samples and batches that an iteration trains on.

    - ``fetches``: batches read since the iteration began, with ``samples`` in total. ``reads``: the
      previous iteration read a batch from a loader.
    - ``ranks``: number of ranks for which this rank may read. ``share``: number of ranks to which
      it was seen to distribute its batches. ``factor``: samples trained on for each one read.
    - ``last_read``: samples and batches of the last iteration that read any.
    - ``unclear``: no loader is read and the modules' inputs do not show the samples, or the batches
      of several loaders lead to steps of several optimizers.
    - ``varies``: the samples are not the same in all iterations. ``needs_next``: the iteration
      after an inspected one is to be inspected, too, as several optimizers step.
    - ``awaits_steps``: an iteration has several steps on what it read, and those of none have been
      inspected yet.
    - ``reads_less``: regular iterations read fewer batches than before, and none of them has been
      inspected yet.
    - ``is_stage``: a backward pass took gradients from another stage or passed some to it.
    """

    def __init__(self, warmup: WarmUp) -> None:
        self._warmup = warmup
        self.ranks = self.share = 1
        self.factor = 1.0
        self.reads = self.unclear = self.varies = self.is_stage = False
        self.reads_less = False
        self._read = self._given_rows = 0.0  # of the last inspected iteration that read
        self.awaits_steps = self._adds_calls = self._repeats_rows = False
        self.last_batch = 0
        self.last_read: tuple[float, float] = 0.0, 0.0
        self._inspections = Series()  # samples of the inspected iterations
        self._last_inspection = 0  # iterations before the last inspection, and their samples if
        self._between = 0.0  # those not inspected are halfway between the inspected ones
        self._loss = LossRows()
        self._input = self._pass_input = 0.0
        self._previous_factor = 0.0
        self._judges_all = False  # the last inspected iteration gave a model all rows read
        # The leading optimizer's step before this iteration, with the iterations before it; and
        # the samples of an iteration as a multiple of that step's.
        self._leading_step: tuple[int, Step] | None = None
        self._turns = 1.0
        self._knows_turns = self.needs_next = False
        self._has_lone_step = False  # an inspected iteration had no other optimizer's step
        # Iterations that read, and those of them before which a batch was trained on repeatedly.
        self._reading_iterations = self._reuses = 0
        self._repeats_batch = False  # the last iteration read nothing
        self._takes_others = False  # its rows were others than those of the iteration before
        # Iterations before the last inspected one, and the contents that it trained on.
        self._last_contents: tuple[int, set[int]] = -1, set()
        self._skips = False  # the last inspected iteration skipped batches
        self._prefetch: int | None = None  # samples of a batch read for the next iteration
        self.begin_iteration()

    def begin_iteration(self) -> None:
        self.fetches = self.samples = 0
        self._smallest = 0  # samples of the smallest batch read
        self.has_inspection = False
        self._loader_is_empty = self._mixes_sizes = False
        self._rows = self._unused_rows = self._outputs = 0
        self._earlier_samples = 0.0  # of passes that led to other optimizers' steps
        self._earlier_steps = 0  # steps of other optimizers that had their own passes
        self._passes = self._switches = 0
        self._misses_pass = False
        self._step_batches: list[Batch] = []  # of passes since the last step
        self._steps: list[Step] = []  # inspected steps since the iteration began
        self._contents: set[int] = set()
        self._graphless_rows: set[int] = set()  # of calls without a graph before its passes
        self._axes: set[int] = set()
        self._read_axes: set[int] = set()
        self._read_storages: set[int] = set()
        self._new_passes: tuple[int, float] = _NO_PASSES  # since the last step
        self._step_passes: tuple[int, float] = _NO_PASSES  # those that led to the last step

    @property
    def is_even(self) -> bool:
        """True if each iteration so far trained on the batches that it read."""
        return self._prefetch is None and self.share == 1

    @property
    def is_inspected(self) -> bool:
        """True if any iteration has been inspected."""
        return self._inspections.count > 0

    @property
    def shown_by_loss(self) -> bool:
        """True if samples vary and are shown by no loader, but by the first axis of each loss."""
        return self.varies and not self.reads and self._loss.is_known

    @property
    def reuses_batches(self) -> bool:
        """True if several steps follow each batch that is read, and do not take a part each: they
        may train on the batch again, or on what a model made beside it.
        """
        return self.reads_rarely and self.factor == 1 and not self._takes_others

    @property
    def reads_rarely(self) -> bool:
        """True if several steps usually follow each batch that is read."""
        return self._reuses >= MIN_REUSES and 2 * self._reuses >= self._reading_iterations

    def is_vague(self, iterations: int, counted: float) -> bool:
        """True if the samples of ``iterations`` vary so much that the inspected ones do not show
        their mean precisely enough yet, or have a trend so that the ``counted`` samples are biased.
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
        # The mean of the others is estimated by that of the inspected ones; both have an error.
        error = inspections.deviation * sqrt(1.0 / unseen + 1.0 / max(1, inspections.count))
        return 2.0 * error * unseen > MAX_SAMPLES_ERROR * inspections.mean * iterations

    @property
    def learnt(self) -> tuple[float, bool, Series, int, float]:
        """State learnt from inspections so far."""
        inspections = copy.deepcopy(self._inspections)
        return self._input, self.varies, inspections, self._last_inspection, self._between

    @learnt.setter
    def learnt(self, state: tuple[float, bool, Series, int, float]) -> None:
        self._input, self.varies, self._inspections = state[:3]
        self._last_inspection, self._between = state[3:]

    @property
    def iterations_that_read(self) -> int:
        """Number of iterations that read a batch, with the one that has not ended yet."""
        return self._reading_iterations + (self.fetches > 0)

    def lead_by_reads(self, steps: int) -> tuple[float, float]:
        """Note that each of the last ``steps`` of the new leading optimizer followed a read: what
        was read is what an iteration trains on. Returns their samples and batches.
        """
        samples, batches = self.last_read
        self._reading_iterations, self._reuses, self._repeats_batch = steps, 0, False
        self.awaits_steps, self.reads = True, True
        self.unclear = False  # iterations without a read are no iterations
        self._leading_step = None
        return samples * steps, batches * steps

    def add_batch(self, samples: int) -> None:
        """Note that a batch of ``samples`` was read; 0 if unknown."""
        self.fetches += 1
        self.samples += samples
        self._smallest = min(samples, self._smallest or samples)
        self.last_batch = samples or self.last_batch

    def switch_loader(self) -> None:
        """Note that the last batch came from another loader than the one before."""
        self._switches += 1

    def end_loader(self) -> None:
        """Note that a loader was asked for a batch but had none left."""
        self._loader_is_empty = True

    def inspect(self, batch: Batch, *, in_step: bool = False) -> None:
        """Note the inspected ``batch`` of the backward pass that begins; ``in_step``: see
        :meth:`add_pass`.
        """
        self.has_inspection = True
        self._mixes_sizes |= batch.unclear
        self._rows += batch.rows
        self._contents |= batch.contents or set()
        self._unused_rows += batch.unused_rows
        self._outputs += batch.outputs
        self._graphless_rows.update(batch.graphless)
        self._axes |= batch.axes
        self._read_axes |= batch.read_axes
        self._read_storages |= batch.read_storages
        self.is_stage |= batch.is_stage
        # Steps of an episode count one by one, and so may the joint steps of several episodes.
        self._adds_calls |= batch.adds_calls
        self._repeats_rows |= batch.repeats_rows
        self._mixes_sizes |= self._adds_calls and self._repeats_rows
        before = self._sum_of_batches()
        self._mixes_sizes |= not (in_step or self.fetches) and self._repeats(batch)
        self._step_batches.append(batch)
        self._pass_input = self._sum_of_batches() - before
        self._loss.learn(self._passes, self._pass_input, batch.loss_rows)

    def clear_gradients(self, parameters: set[int]) -> None:
        """Note that the gradients of ``parameters`` were set to zero. Drop the passes of an attack,
        which wants the gradients of the inputs: they trained nothing if they led to no others. The
        gradients of other passes may have been stored elsewhere.
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

    def _repeats(self, batch: Batch) -> bool:
        """Whether an earlier pass of the same place had equal rows: they may be draws of the same
        samples, or accumulate a gradient. Single rows, such as a game's states, may recur.
        """
        return batch.samples > 1 and any(
            bool(batch.contents) and batch.contents == other.contents
            for other in self._step_batches
            if other.place == batch.place
        )

    def _sum_of_batches(self) -> int:
        """Samples of the passes since the last step.

        Passes begun by one place in the code accumulate a gradient, so their samples add up. Passes
        of several places are terms of a loss. They are over the same samples if they take the same
        memory. They add no samples if they take a model's results beside real samples, or points
        between both, or train only their input. In other cases it is unclear whether the samples
        are the same if there are equally many. Passes of several stages of a model are over the
        same samples.
        """
        stages: dict[frozenset[int], int] = {}
        for batch in self._step_batches:
            if not (batch.samples or batch.parameters):
                continue  # over what was computed before, such as embeddings
            key = frozenset(batch.parameters if batch.is_stage else ())
            stages[key] = stages.get(key, 0) + batch.samples
        are_apart = len(frozenset().union(*stages)) == sum(map(len, stages))
        if len(stages) > 1 and all(stages) and are_apart:
            return max(stages.values())
        places: dict[Any, int] = {}  # by place in the code: samples of its passes
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
        """Note that the loss of the backward pass that begins has ``rows`` rows."""
        samples = self._loss.samples(self._passes, rows)
        self.has_inspection, self._pass_input = True, samples or 0
        self._misses_pass |= samples is None

    def add_pass(self, *, in_step: bool) -> None:
        """Note the end of a backward pass. All passes ``in_step``, within a closure that an
        optimizer such as LBFGS calls, are over the same samples.
        """
        passes, samples = self._new_passes
        self._passes += 1
        if in_step:
            self._new_passes = 1, max(samples, self._pass_input)
        else:
            self._new_passes = passes + 1, samples + self._pass_input
        self._pass_input = 0.0

    def begin_step(self) -> None:
        """Begin a step, and attribute the passes since the last step to it."""
        self._earlier_samples = max(self._earlier_samples, self._step_passes[1])
        self._earlier_steps += self._step_passes[0] > 0
        self._step_passes = self._new_passes
        self._new_passes = _NO_PASSES
        if self.has_inspection:
            self._steps.append(Step(self._step_batches, self._step_passes[1]))
        self._step_batches = []

    def attribute_prefetched_batch(self, regular: RegularIterations, passes: int) -> None:
        """Count a prefetched batch for the iteration that trained on it.

        A loop that prefetches one batch (accelerate's loaders) reads none in the last iteration of
        an epoch, and two in the first of the next.
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
        """Return samples and batches of the iteration that ends after ``earlier`` others, or of
        several iterations that are counted as one.

        These are the samples read for it. If none were read, they are those of the inputs of its
        forward passes, as inspected now or on average so far; or else those of the batch that was
        read once, before the loop.
        """
        passes = max(self._step_passes[0], self._new_passes[0], iterations)
        if self.has_inspection and not self._misses_pass:
            self._learn_input(iterations, earlier)
        self.reads = self.fetches > 0
        self.count_reuses(reads=self.reads)
        if self.has_inspection:
            self._compare_contents(earlier)
        if not self.fetches:
            is_seen = self.has_inspection and not self._misses_pass
            samples = (is_seen and self._input) or self.expected_samples
            return samples * max(1, iterations), passes
        passes = min(passes, self.fetches)  # the two passes of a GAN are over one batch
        self.last_read = self.samples / self.share, min(passes, self.fetches / self.share)
        if self.has_inspection:
            if self.awaits_steps:
                self.awaits_steps = False
                is_known = trains_on(self._steps, self.last_read[0], self._read_storages)
                self.unclear = self.unclear or not is_known
            skips, self._skips = self._skips, self._is_skipped()
            self.unclear = self.unclear or self._is_shared_out() or (skips and self._skips)
            if self.ranks > 1:
                # One rank may read for all ranks and distribute the batches.
                distributes = self._input * self.ranks == self.samples
                self.share = self.ranks if distributes else 1
            if not self._keeps_batches():
                self._compare_with_input()
        samples = self.samples / self.share * self.factor
        return samples, min(passes, self.fetches / self.share)

    def count_reuses(self, *, reads: bool, iterations: int = 1) -> None:
        """Count iterations that end: each of ``iterations`` ``reads`` a batch, or none does."""
        if reads:
            self._reading_iterations += iterations
            self._reuses += self._repeats_batch
        self._repeats_batch = not reads and self._reading_iterations > 0

    def _compare_contents(self, earlier: int) -> None:
        """Note whether the iteration after ``earlier`` others, which read no batch, trained on
        other rows than the one before: on another part of the batch, such as its texts' next words.
        """
        before, contents = self._last_contents
        if not self.fetches and before == earlier - 1 and contents and self._contents:
            self._takes_others = not contents & self._contents
        self._last_contents = earlier, self._contents

    def _learn_input(self, iterations: int, earlier: int) -> None:
        # The leading optimizer's pass may not involve a model, such as a temperature's. If an
        # inspection saw no call of a model at all, the earlier one still holds.
        samples = max(self._step_passes[1], self._new_passes[1])
        samples = samples or self._earlier_samples or self._input
        if iterations == 1 and not self.fetches:
            samples *= self._turns_of_steps(earlier)
        self.varies = self.varies or 0 < self._input != samples
        if earlier < self._last_inspection:  # the iterations of that inspection were forgotten
            self._last_inspection, self._between = 0, 0.0
        halfway = (samples + (self._input or samples)) / 2.0
        self._between += halfway * (earlier - self._last_inspection)
        self._last_inspection = earlier
        self._input = samples
        self._inspections.add(samples)
        self.unclear = self.unclear or (self._mixes_sizes and not self.fetches)

    @property
    def leading_step(self) -> Step | None:
        """The most recently inspected step of the leading optimizer."""
        return None if self._leading_step is None else self._leading_step[1]

    def _turns_of_steps(self, earlier: int) -> float:
        """Samples of the iteration after ``earlier`` others, as a multiple of the leading
        optimizer's. The iteration includes the step that ended the previous one.
        """
        steps, self._steps = self._steps, []
        before, self._leading_step = self._leading_step, (earlier, steps[-1]) if steps else None
        if len(steps) < 2:
            self._has_lone_step = True
            self._mixes_sizes |= self._turns != 1.0
            return self._turns
        if before is None or before[0] != earlier - 1:
            self.needs_next = not self._knows_turns
            return self._turns
        self.needs_next, self._knows_turns = False, True
        number = turns([before[1], *steps[:-1]])
        if number is None or (number != 1.0 and self._has_lone_step):
            self._mixes_sizes = True  # the turns differ between iterations
        elif number != self._turns:
            ratio, self._turns = number / self._turns, number
            self._warmup.scale_samples(ratio)
            self._between *= ratio
            self._input *= ratio
            self._inspections = Series()
            self._inspections.add(self._input)
        return self._turns

    def _is_shared_out(self) -> bool:
        """Whether batches of several loaders lead to steps of several optimizers, none of which
        trains on everything that was read.
        """
        most = max(self._earlier_samples, self._step_passes[1], self._new_passes[1])
        return self._switches > 1 and self._earlier_steps > 0 and 0 < most < self.samples

    def _is_skipped(self) -> bool:
        """Whether one loader yielded several batches, but there were fewer passes of one each."""
        passes, batch = self._step_passes[0], self._smallest / self.share
        is_less = 0 < passes < self.fetches and 0 < self._rows == passes * batch
        return is_less and self._switches <= 1

    def _keeps_batches(self) -> bool:
        """Whether the model is given as many rows as before although less is read, and count them:
        a loader's batches were kept and are used again, as `itertools.cycle` does.
        """
        read, given_rows = self._read, self._given_rows
        self._read = self.samples / self.share
        self._given_rows = max(self._step_passes[1], self._new_passes[1])
        is_less, self.reads_less = self.reads_less and self._read < read, False
        if not (is_less and self._given_rows == given_rows):
            return False
        self.factor *= read / self._read
        return True

    def _compare_with_input(self) -> None:
        """Set the ratio of samples trained on to samples read, once two inspections agree on it.

        A loader may yield the rows of several steps at a time (the model takes 1/k of them in all
        its calls, also in those that lead to no pass), batches that its data set made (the model
        takes k for each "sample"), or questions, to each of which the model first makes several
        answers. Any other difference is one of layout: packed texts, patches, nodes of graphs.
        """
        read, given_rows = self.samples / self.share, max(self._step_passes[1], self._new_passes[1])
        passes = max(self._step_passes[0], self._new_passes[0])
        factor = 1.0
        # A second axis as long as the batch is the batch axis: the first axis is time.
        if given_rows > passes and read and read / self.fetches not in self._axes:
            is_part = read % given_rows == 0 and self._rows > 0
            is_part = is_part and self._rows + self._unused_rows < read
            # A pass over a whole batch is not over a slice; other passes use the other batches.
            is_part = is_part and given_rows < passes * self._smallest / self.share
            # If each iteration first gives a model all rows, it chooses those to train on.
            judged, self._judges_all = self._judges_all, read in self._graphless_rows
            is_part = is_part and not (judged and self._judges_all)
            independent = self._rows == self._outputs == given_rows
            has_axis = not self._read_axes or given_rows // passes in self._read_axes
            ready_made = read == self.fetches and independent and given_rows % read == 0
            ready_made = ready_made and has_axis
            # Answers to questions: all are made at once, without a graph, and trained on in parts.
            answers = given_rows in self._graphless_rows and given_rows % read == 0
            answers = answers and passes > self.fetches and given_rows > read
            if is_part or ready_made or answers:
                factor = given_rows / read
        if factor == self._previous_factor and factor != self.factor:
            self._warmup.scale_samples(factor / self.factor)
            self.factor = factor
        self._previous_factor = factor
