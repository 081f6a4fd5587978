"""Turns events into iterations: what the training loop did between two optimizer steps.

Knows neither PyTorch nor a clock: hooks call it with what they saw and when. `phases.py` divides
the time of an iteration, `sample_counter.py` counts what it trained on, `regular.py` learns what a
regular iteration is, and `device_times.py` adds the GPU's times.
"""

from __future__ import annotations

import copy

from hops_profiler.timing.accumulation import Accumulation
from hops_profiler.timing.counts import PHASES, WARMUP, Counts, spans
from hops_profiler.timing.device_times import DeviceTimes
from hops_profiler.timing.exclusions import Exclusions
from hops_profiler.timing.forgotten import ForgottenGraphs
from hops_profiler.timing.pauses import MAX_DOUBTFUL_SHARE, ROLLOUT, Pauses
from hops_profiler.timing.phases import PhaseClock
from hops_profiler.timing.reads import Reads
from hops_profiler.timing.regular import (
    FREQUENT,
    MAX_KINDS,
    MIN_EVALUATION_INTERVAL,
    RegularIterations,
    WarmUp,
)
from hops_profiler.timing.sample_counter import SampleCounter
from hops_profiler.timing.steps import are_learners

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from hops_profiler.timing.device_times import Device
    from hops_profiler.timing.sample_counter import Batch
    from hops_profiler.timing.steps import Step

    Times = tuple[float, dict[str, float], float, float, int]
    """Seconds in all and by phase, samples, batches, and the number of learners."""

STEPS_TO_NEW_LEADER = 10
"""Number of steps without one of the leading optimizer that make another optimizer the leader."""

MAX_FORMER_LEADERS = 8
"""Maximum number of remembered optimizers that were leaders and may return."""

BACKWARDS_WITHOUT_STEP = 32
"""Number of backward passes without any step after which each backward pass ends an iteration: no
hook sees steps that are compiled into the user's graph, or steps of other optimizers than
PyTorch's."""

MAX_BACKWARDS_WITHOUT_STEP = 4 * BACKWARDS_WITHOUT_STEP
"""If gradients were cleared once by then, the recorder waits up to this number of passes to see
whether the next ones accumulate as many."""

MAX_STEPS_WITHOUT_BACKWARD = 10
"""Number of consecutive steps without a backward pass after which such a step ends an iteration, as
the gradients come from elsewhere (`torch.autograd.grad`)."""

MIN_EARLY_EVALUATIONS = 8
"""Number of calls of `eval()` before the first step that show that the model acts. Teachers and the
like need fewer."""

_BACKWARD = 0
"""Leader if backward passes end the iterations; no optimizer has this key."""


class Recorder:
    """Divides the time of one process into iterations and phases. Times are seconds of one clock.

    An iteration is a forward pass, the backward pass it leads to, and the resulting step of the
    leading optimizer, which is the first one that stepped. Steps of other optimizers (a GAN's, or
    one for each layer) belong to the leader's iterations, and so do steps without a backward pass.
    If the leader stops stepping, another optimizer becomes the leader. If the former leader returns
    after all, the two take turns, and the other's steps belong to the former leader's iteration.

    If no hook sees steps, each backward pass ends an iteration, or the last one of those that
    accumulate a gradient. As long as there was no backward pass and no step, each batch ends the
    iteration of the previous one: this is inference, with data and forward phases only (section 3.5
    of the paper). These iterations are dropped once training begins.

    ``counts`` are those of all iterations so far. ``shares_steps`` is True if other threads step,
    too.
    """

    def __init__(self, device: Device | None = None) -> None:
        self.trains = self.shares_steps = False
        self.counts = Counts()
        self._warmup = WarmUp()
        self.sample_counter = SampleCounter(self._warmup)
        self._phases = PhaseClock(device)
        self._device_times = DeviceTimes(device)
        self._regular = RegularIterations()
        self._time = 0.0  # of the last event that ended a phase
        self._leader: int | None = None
        self._other_steps: dict[int, int] = {}  # by optimizer, since the leader's last step
        self._heirs: set[int] = set()  # optimizers that stepped after a pass beside the leader
        self._steps_to_lead = STEPS_TO_NEW_LEADER
        self._leader_is_gone = self._leader_is_new = False
        self._turn_begin = self._turn = (
            0  # iterations before the leader's turn, and of the one before
        )
        # By optimizer: the counts at its last step, what was known of its samples, and a step.
        self._former_leaders: dict[int, tuple[Counts, WarmUp, Any, Step | None]] = {}
        self._reads = Reads()
        self._exclusions = Exclusions()  # of iterations that read no batch
        # By passes, batches read and evaluations: times of the first such iteration, unless it was
        # known to be regular.
        self._first_times: dict[tuple[int, int, int], Times] = {}
        self._doubtful_seconds = 0.0  # of iterations that may have a rollout
        self._steps_without_backward = 0
        self._accumulation = Accumulation()
        self._closure_steps = 0
        self._steps_elsewhere = 0  # in other threads, since the iteration began
        self._learners_differ = False
        self._last_graphless = -MIN_EVALUATION_INTERVAL
        self._pauses = Pauses()
        self._graphs = ForgottenGraphs()
        self._early_evaluations = 0  # before the first step
        self._has_backward = False  # True once any backward pass has begun
        self._begin_iteration()

    def _begin_iteration(self) -> None:
        self._passes = self._evaluations = 0
        self._graphless, self._late_place = False, None
        # Blocks without a graph took long that the first iterations had, too.
        self._is_early = self._reads_graphless = False
        self._pauses.begin_iteration()
        self.sample_counter.begin_iteration()
        self._phases.restart()

    @property
    def samples(self) -> float:
        """All samples trained on; those of the first iterations by what is known now."""
        warmup = self._warmup.trained_on(self._regular)
        return self.counts.samples + sum(samples for samples, _ in warmup)

    @property
    def batches(self) -> float:
        """Like :attr:`samples`, for batches."""
        warmup = self._warmup.trained_on(self._regular)
        return self.counts.batches + sum(batches for _, batches in warmup)

    @property
    def samples_are_unknown(self) -> bool:
        """True if the samples that the iterations trained on cannot be counted (yet)."""
        counter = self.sample_counter
        if counter.unclear or counter.reuses_batches or counter.awaits_steps:
            return True
        return counter.is_vague(self.counts.iterations, self.samples)

    @property
    def time_is_unknown(self) -> bool:
        """True if time excluded as evaluations may be part of the training, or the reverse; if
        backward passes end the iterations and may accumulate a gradient; or if all of several
        optimizers step several times for each read, which may be the iteration.
        """
        if self._leader == _BACKWARD and self._accumulation.is_unseen:
            return True
        if self._reads.others and self.sample_counter.reuses_batches:
            return True
        doubtful_seconds = self._pauses.doubtful_seconds + self._graphs.doubtful_seconds
        doubtful_seconds += self._exclusions.doubtful_seconds + self._doubtful_seconds
        return doubtful_seconds > MAX_DOUBTFUL_SHARE * self.counts.iteration.sum

    @property
    def fetches(self) -> float:
        """Batches read per iteration, including those for other ranks."""
        return self.batches * self.sample_counter.share / self.counts.iterations

    @property
    def steady(self) -> bool:
        """True while an optimizer's steps end the iterations, and backward passes lead to them."""
        return self.trains and self._leader != _BACKWARD and self.counts.passes > 0

    @property
    def begins_late(self) -> bool:
        """True if several iterations ended at once, the first ones or those of a new leading
        optimizer, and none has been inspected since.
        """
        is_unseen = self._leader == _BACKWARD and not self.sample_counter.is_inspected
        return is_unseen or self._leader_is_new

    @property
    def evaluating(self) -> bool:
        """True if a model was put into evaluation mode since the last iteration."""
        return self._evaluations > 0

    @property
    def in_phase(self) -> bool:
        """True while a phase is open, as for a step in a backward pass or in another's closure."""
        return bool(self._phases.open)

    # The GPU's clock

    @property
    def marking(self) -> bool:
        """True while the device's clock times this iteration."""
        return self._device_times.marking

    def begin_on_device(self) -> None:
        """Let the device's clock time the next iteration if one is due. To be called at the end of
        an iteration, when all events so far have been processed.
        """
        self._device_times.begin(self.counts)

    def read_device(self) -> None:
        """Count the iterations that the device has finished meanwhile."""
        self._device_times.read(self.counts)

    # Events

    def begin_data(self, now: float) -> None:
        """Note that the loop asks for a batch."""
        self._phases.begin("data", self._phases.innermost("rest"), now)

    def begin_backward(self, now: float) -> None:
        """Begin a backward pass. The phase before it is always a forward pass, even within a step:
        that of a closure, such as Lightning's.
        """
        if not self._has_backward:
            self._has_backward = True
            if self.trains:  # the steps so far trained nothing: they plotted a learning rate
                self._forget_iterations()
        self._phases.begin("backward", "forward", now)

    def keep_gradients(self, keeps: bool) -> None:
        """Note whether the backward pass that begins adds to the gradients of the previous one.
        Called only as long as no optimizer's step ended iterations.
        """
        if "backward" not in self._phases.open:
            self._accumulation.begin_pass(keeps=keeps)

    def begin_update(self, now: float) -> None:
        """Begin an optimizer's step. Unscaling and clipping before it belong to the update."""
        self.sample_counter.begin_step()
        previous = self._phases.innermost("update" if self._passes else "rest")
        self._phases.begin("update", previous, now)

    def abandon(self, _: object = None) -> None:
        """Close all phases, as an exception has ended a step."""
        self._phases.open.clear()

    def leave(self, now: float) -> bool:
        """End the innermost phase. True if an iteration ends with it."""
        self._time = now
        if self._phases.end(now) != "backward" or "backward" in self._phases.open:
            return False  # a nested backward pass is the recomputation of a checkpoint
        self._passes += 1
        counter = self.sample_counter
        counter.add_pass(in_step=self.in_phase)
        if not self._accumulation.is_full:
            return False
        if self._leader is None and self._passes >= BACKWARDS_WITHOUT_STEP:
            is_open = self._accumulation.is_half_seen
            if is_open and self._passes < MAX_BACKWARDS_WITHOUT_STEP:
                return False
            self._leader = _BACKWARD
            self._closure_steps = int(self.in_phase)
            return self._end_iteration(now, self._passes // self._accumulation.passes)
        if self._leader != _BACKWARD:
            return False
        counter.begin_step()
        return self._end_iteration(now)

    def add_batch(self, samples: int) -> bool:
        """Note a batch of ``samples`` (0: unknown). True if it ended an inference iteration."""
        if self._phases.open:
            return False  # the batch is of a loader within the data set
        infers = self.sample_counter.fetches > 0 and not (self.trains or self._passes)
        if infers:
            self._end_inference()
        self.sample_counter.add_batch(samples)
        return infers

    def add_batch_elsewhere(self, samples: int) -> None:
        """Note a batch that another thread read, perhaps far ahead: the models' inputs show when it
        is trained on.
        """
        self.sample_counter.last_batch = samples or self.sample_counter.last_batch

    def read_graphless(self, _: object = None) -> None:
        """Note that the last batch was read in code that builds no graph, as by an evaluation."""
        self._reads_graphless = True

    def end_loader(self, _: object = None) -> None:
        """Note that the loader had no further batch."""
        if not self._phases.open:  # else it is a loader within the data set
            self.sample_counter.end_loader()

    def inspect(self, batch: Batch) -> None:
        """Note the inspected ``batch`` of the backward pass that begins."""
        if "backward" in self._phases.open:
            return
        self._leader_is_new = False
        self.sample_counter.inspect(batch, in_step=self.in_phase)
        self._pauses.add(batch.samples, batch.graphless)

    def clear_gradients(self, parameters: set[int]) -> None:
        """Note that the gradients of ``parameters`` (identities) were set to zero. Called only
        while passes are inspected.
        """
        self.sample_counter.clear_gradients(parameters)

    def read_loss(self, loss: tuple[int, int]) -> None:
        """Note the number of the node from which a backward pass begins, and the rows of its
        loss.
        """
        node, rows = loss
        self._graphs.add(node)
        self.sample_counter.read_loss(rows)

    def number(self, node: int) -> None:
        """Note the number of the node from which a backward pass begins."""
        self._graphs.add(node)

    def switch_loader(self, _: object = None) -> None:
        """Note that the last batch came from another loader than the one before."""
        if not self._phases.open:
            self.sample_counter.switch_loader()

    def add_evaluation(self, _: object = None) -> None:
        """Note that a model was put into evaluation mode."""
        self._evaluations += 1

    def add_graphless(self, late_place: Any) -> None:
        """Note that the loop spent more than an iteration's time in code that builds no graph.

        ``late_place`` is any key for this code if the training began without it; FREQUENT if it
        came twice at first; else None.
        """
        if self._phases.open:
            return
        if late_place == FREQUENT:
            self._is_early = True
            return
        self._graphless = True
        self._late_place = late_place or self._late_place

    def step(self, optimizer: int) -> bool:
        """Note a step of the optimizer with this key. True if an iteration ended with it."""
        now = self._time
        if self._leader == _BACKWARD:
            if self._closure_steps == 1:
                self._closure_steps = 2
                return False  # there may be no further passes: they stay iterations
            self._merge_iterations()
            if not self._passes:  # all passes have been counted
                self._leader = optimizer
                self.counts.end(now, max(1, self._closure_steps))
                return True
        iterations = 1
        is_former = optimizer in self._former_leaders
        if is_former and (self._is_learner(optimizer) or self._reads_in_turn(optimizer)):
            del self._former_leaders[optimizer]
            self._keep_leader()
        elif is_former:
            self._restore_leader(optimizer)
        elif self._leader_is_gone and (self._passes or not self.counts.passes):
            self._leader_is_gone = False
            heir = next(iter(self._heirs & self._other_steps.keys()), None)
            if heir is not None:
                return self._lead_after_copies(heir)
        elif optimizer != self._leader and self._leader is not None:
            iterations = self._other_steps[optimizer] = self._other_steps.get(optimizer, 0) + 1
            self._heirs |= {optimizer} if self._passes else set()
            if iterations < self._steps_to_lead:
                return self._step_beside_leader(optimizer)
            self._keep_leader()
        if self._passes or "backward" in self._phases.open or not self.counts.passes:
            self._steps_without_backward = 0
        elif self._steps_without_backward < MAX_STEPS_WITHOUT_BACKWARD:
            self._steps_without_backward += 1
            return False
        self._leader = optimizer
        self._other_steps.clear()
        return self._end_iteration(now, iterations)

    def _step_beside_leader(self, optimizer: int) -> bool:
        """Note a step of an optimizer that does not lead. True if it leads from now on, as it steps
        once for each read.
        """
        if not self._passes:
            self._graphs.lead_to_step()
        if optimizer in self._reads.others:
            return False
        reads = self.sample_counter.iterations_that_read
        steps = self._reads.step(optimizer, reads, self.counts.iterations)
        return bool(steps) and self._lead_by_reads(optimizer, steps)

    def retire(self, optimizer: int) -> None:
        """Note that ``optimizer`` is gone: if it led, the next one to step becomes the leader."""
        self._leader_is_gone |= optimizer == self._leader
        self._former_leaders.pop(optimizer, None)
        self._other_steps.pop(optimizer, None)
        self._reads.forget(optimizer)

    def step_elsewhere(self, optimizer: int) -> None:
        """Note that ``optimizer`` stepped in another thread, after a backward pass there.

        If it is not the leader, that thread's learner may have batches of a different size.
        """
        if self._leader == _BACKWARD:
            return
        self._steps_elsewhere += 1
        self.shares_steps = True
        self._learners_differ |= self._leader not in (None, optimizer)

    def consume_regular_iterations(self, events: list[Any], position: int) -> int:
        """Process the regular iterations in ``events`` from ``position`` on. Entries alternate
        between methods and their arguments; each iteration has a batch if a loader is read, a pass
        and a step. Returns the number of entries processed.

        The result is the same as event by event, which takes three times as long.
        """
        reads = events[position] is Recorder.begin_data
        if not self._may_begin_regular(int(reads)):
            return 0
        methods = _REGULAR if reads else _REGULAR_WITHOUT_LOADER
        length, leader = 2 * len(methods), self._leader
        count = _count_repetitions(events, position, methods, leader)
        if not count:
            return 0
        end = position + count * length
        columns = [events[position + part : end : length] for part in range(1, length, 2)]
        *fetches, begins, ends, _, steps, _ = columns
        iteration_ends = [self._phases.boundary, *steps]
        counter, seconds = self.sample_counter, dict.fromkeys(PHASES, [0.0] * count)
        if reads:
            asks, arrivals, sizes = fetches
            seconds["data"] = spans(asks, arrivals)
            seconds["rest"] = spans(iteration_ends, asks)
            samples, last = sum(sizes) * counter.factor, sizes[-1] * counter.factor
            counter.last_batch = next(filter(None, reversed(sizes)), counter.last_batch)
            counter.last_read = float(sizes[-1]), 1
        else:
            arrivals, last = iteration_ends, counter.expected_samples
            samples = last * count
        counter.reads = reads
        counter.count_reuses(reads=reads, iterations=count)
        seconds["forward"] = spans(arrivals, begins)
        seconds["backward"] = spans(begins, ends)
        seconds["update"] = spans(ends, steps)
        if reads:
            self._graphs.skip()
        else:
            self._exclusions.add(1, count)
            took = spans(iteration_ends, steps)
            rows = zip(fetches[0], took, seconds["backward"])  # noqa: B905 - Python 3.8
            for number, row in enumerate(rows, self.counts.iterations):
                self._graphs.add(row[0])
                self._graphs.end_iteration(number, *row[1:])
        self.counts.add_regular(seconds, steps, samples, read=reads)
        self._regular.confirm(count, last)
        self._phases.boundary = self._time = steps[-1]
        self._steps_without_backward = 0
        self._other_steps.clear()
        self._device_times.skip(count)
        return end - position

    def _may_begin_regular(self, fetches: int) -> bool:
        """True if an iteration has just ended, and the next one, with ``fetches`` batches read, is
        timed if it is regular.
        """
        counter = self.sample_counter
        has_begun = (
            counter.fetches
            or self._passes
            or self._evaluations
            or self._phases.open
            or counter.has_inspection
            or self._graphless
            or self._is_early
            or self._steps_elsewhere
            or self._graphs.has_number
        )
        return (
            self.counts.iterations >= WARMUP
            and self._phases.boundary == self.counts.last_step
            and not (has_begun or len(self._warmup) or self.marking)
            and counter.is_even
            and self._regular.includes(1, fetches, 0)
        )

    # Ends of iterations

    def _end_inference(self) -> None:
        """End the inference iteration that the previous batch began."""
        seconds, counts, samples = self._phases.seconds, self.counts, self.sample_counter.samples
        seconds["forward"], seconds["rest"] = seconds["rest"], 0.0
        counts.inference = True
        counts.count(samples, 1, read=True)
        counts.end(self._phases.boundary, 1)
        if counts.iterations > WARMUP:
            counts.time(counts.took, seconds, samples, 1)
        self._begin_iteration()

    def _merge_iterations(self) -> None:
        """Merge the iterations so far: they were passes of one iteration, which accumulates."""
        samples, batches = self.samples, self.batches
        if self._closure_steps:  # all passes of a closure were over the same samples
            samples *= self._closure_steps / max(1, self.counts.iterations)
            batches = self._closure_steps
        self._forget_iterations()
        self.counts.count(samples, batches, read=self.sample_counter.reads)

    def _keep_leader(self) -> None:
        """Store the state of the leader, as another optimizer replaces it; it may return."""
        self._leader_is_new = True
        self._turn = self.counts.iterations - self._turn_begin
        self._turn_begin = self.counts.iterations
        if self._leader is not None and len(self._former_leaders) < MAX_FORMER_LEADERS:
            counts, counter = copy.deepcopy(self.counts), self.sample_counter
            former = counts, self._warmup.copy(), counter.learnt, counter.leading_step
            self._former_leaders[self._leader] = former

    def _is_learner(self, optimizer: int) -> bool:
        """Whether a former leader and the leader are learners that take turns, each with its own
        models and samples.
        """
        counter = self.sample_counter
        step, leading_step = self._former_leaders[optimizer][3], counter.leading_step
        if step is None or leading_step is None:
            return False
        verdict = are_learners(step, leading_step)
        counter.unclear |= verdict is None
        return bool(verdict)

    def _reads_in_turn(self, optimizer: int) -> bool:
        """Whether a former leader and the leader take long turns, as in epochs for each of two
        models, and each of their steps followed a read of its own.
        """
        former, counts = self._former_leaders[optimizer][0], self.counts
        steps, batches = former.iterations, former.loader_batches
        is_long = self._turn >= STEPS_TO_NEW_LEADER and batches >= steps
        return is_long and counts.loader_batches - batches >= counts.iterations - steps

    def _restore_leader(self, optimizer: int) -> None:
        """Make a former leader the leader again, as it steps. Everything since its last step
        belongs to the iteration that ends.

        To become leaders again, others then need twice as many steps as this turn had.
        """
        counts, warmup, self.sample_counter.learnt, _ = self._former_leaders[optimizer]
        former_leaders = list(self._former_leaders)
        turn = self.counts.iterations - counts.iterations
        for later in former_leaders[former_leaders.index(optimizer) :]:
            del self._former_leaders[later]
        self._steps_to_lead = max(self._steps_to_lead, 2 * turn)
        self.counts, self._leader = counts, optimizer
        self._warmup.restore(warmup)
        seconds = self._phases.seconds
        seconds["rest"] += self._time - counts.last_step - sum(seconds.values())
        self._device_times.ignore_pending()

    def _lead_by_reads(self, optimizer: int, steps: int) -> bool:
        """Make ``optimizer`` the leader at the last of its ``steps``: each followed a read, and the
        former leader stepped several times in between. An iteration is what follows a read.
        """
        former, counter = self.counts, self.sample_counter
        self._steps_to_lead = max(self._steps_to_lead, 2 * former.iterations // steps)
        passes = former.passes + self._passes
        self._forget_iterations()
        self._leader, counts = optimizer, self.counts
        counts.count(*counter.lead_by_reads(steps), read=True)
        counts.end(self._time, steps, passes)
        counts.first_step = former.first_step
        self._last_graphless = -MIN_EVALUATION_INTERVAL
        self._begin_iteration()
        return True

    def _lead_after_copies(self, optimizer: int) -> bool:
        """Make ``optimizer`` the leader, which stepped after the former leader and outlived it: the
        former trained a copy of the model for a while, whose gradient this step takes.
        """
        former, passes = self.counts, self.counts.passes + self._passes
        self._forget_iterations()
        self._leader = optimizer
        self.counts.end(self._time, 1, passes)
        self.counts.first_step = former.first_step
        self._begin_iteration()
        return True

    def _forget_iterations(self) -> None:
        self._first_times.clear()
        self._exclusions.clear()
        self._doubtful_seconds = 0.0
        self.counts, self._regular, self._leader = Counts(), RegularIterations(), None
        self._former_leaders.clear()
        self._warmup.clear()
        self._other_steps.clear()
        self._device_times.ignore_pending()

    def _end_iteration(self, now: float, iterations: int = 1) -> bool:
        """End an iteration, or several that are counted as one."""
        counter = self.sample_counter
        if not self.trains:
            self.trains = True
            if self.counts.inference:  # it was a validation before training began
                self.counts = Counts()
        counter.attribute_prefetched_batch(self._regular, self._passes)
        samples, batches = counter.end_iteration(iterations, self.counts.iterations)
        learners, self._steps_elsewhere = 1 + self._steps_elsewhere, 0
        if not counter.fetches:  # else the other threads' batches have been counted already
            samples, batches = samples * learners, batches * learners
            counter.unclear = counter.unclear or self._learners_differ
        is_first = self.counts.iterations == 0
        regular = self._vote(samples, batches, learners)
        is_late = self.counts.iterations >= WARMUP and iterations == 1
        is_timed = regular and is_late
        self._count(samples, batches, regular=regular)
        self.counts.end(now, iterations + learners - 1, self._passes)
        self._pauses.end_iteration(self.counts.took, regular=regular)
        backward = self._phases.seconds["backward"]
        self._graphs.end_iteration(self.counts.iterations - 1, self.counts.took, backward)
        if not (regular or is_first):
            self.counts.interruptions += 1
        if regular and self._graphless:
            self._doubtful_seconds = 0.0  # it comes often: what was excluded was the first one
        elif not is_first and not regular and self._may_roll_out:
            self._doubtful_seconds += self.counts.took
        if not (counter.fetches or is_first):
            self._exclusions.add(self._passes, 1, 0.0 if regular else self.counts.took)
        seconds = self._phases.seconds
        by_device = self._device_times.end((seconds, samples, batches), regular=is_timed)
        if is_late and not by_device:
            times = self.counts.took, seconds, samples, batches, learners
            self._time_iteration(times, regular=regular)
        self._begin_iteration()
        return True

    def _vote(self, samples: float, batches: float, learners: int) -> bool:
        """Whether the iteration that ends is regular. The first one never is, as it may contain
        anything that came before the training.
        """
        iterations, fetches = self.counts.iterations, self.sample_counter.fetches
        if self._graphless:
            # Without a loader, blocks that were there from the beginning may be rollouts.
            rare = fetches > 0 and iterations - self._last_graphless >= MIN_EVALUATION_INTERVAL
            self._evaluations += rare or self._has_late_evaluation()
            self._is_early |= self._late_place is None
            self._last_graphless = iterations
        if iterations == 0:
            self._early_evaluations = self._evaluations
        self._evaluations = self._regular.even_out(self._passes, self._evaluations, iterations)
        usual = self._regular.evaluations(self._passes)
        if usual not in (None, self._evaluations) and not fetches:
            is_early = self._graphless and self._late_place is None
            is_early |= self._early_evaluations >= MIN_EARLY_EVALUATIONS
            if self._pauses.judge(iterations, is_early=is_early) == ROLLOUT:
                self._evaluations = usual
        regular = iterations > 0 and self._regular.vote(*self._votes)
        if self._regular.reads_less:
            self._regular.reads_less, self.sample_counter.reads_less = False, True
        if regular and (learners == 1 or fetches):
            self._regular.learn(self._passes, samples, batches)
        return regular

    @property
    def _may_roll_out(self) -> bool:
        """Whether code that the training began with makes what the loader then yields, perhaps from
        one batch of questions. An evaluation reads more, or reads where no graph is built.
        """
        fetches = self.sample_counter.fetches
        reads_more = self._regular.reads_more(self._passes, fetches)
        return fetches > 0 and self._is_early and not (self._reads_graphless or reads_more)

    @property
    def _votes(self) -> tuple[int, int, int]:
        """Passes, batches read and evaluations of the iteration that ends."""
        fetches = self.sample_counter.fetches
        is_usual_read = fetches == 1 and self.sample_counter.reads_rarely
        return self._passes, 0 if is_usual_read else fetches, self._evaluations

    def _has_late_evaluation(self) -> bool:
        """Whether the code that took long in the iteration that ends is an evaluation: training
        began without it and needs nothing from it. With a loader, no rollouts are needed.
        """
        if self._late_place is None:
            return False
        evaluates = self._regular.evaluates(self._late_place, self.counts.iterations)
        return evaluates or self.sample_counter.fetches > 0

    def _count(self, samples: float, batches: float, *, regular: bool) -> None:
        """Count what the iteration that ends trained on; if it is not regular, count as much as for
        a regular one.
        """
        counts, passes, fetches = self.counts, self._passes, self.sample_counter.fetches
        if counts.iterations < WARMUP:
            self._warmup.add(passes, fetches, self._evaluations, samples, batches)
            return
        for warmup_samples, warmup_batches in self._warmup.trained_on(self._regular):
            counts.count(warmup_samples, warmup_batches, read=fetches > 0)
        self._warmup.clear()
        expectation = None if regular else self._regular.predict(passes, batches)
        counts.count(*(expectation or (samples, batches)), read=fetches > 0)

    def _time_iteration(self, times: Times, *, regular: bool) -> None:
        """Add the time of the iteration that ended if it is ``regular``. The first one with as many
        passes is known to have been regular once there is another, and is added then.
        """
        if regular:
            self._add_time(*times)
            first = self._first_times.pop(self._votes, None) if self._first_times else None
            if first is not None:
                self._add_time(*first)
                self.counts.interruptions -= 1
        elif self._regular.is_new(*self._votes):
            if len(self._first_times) >= MAX_KINDS:
                self._first_times.clear()
            self._first_times[self._votes] = times

    def _add_time(
        self, took: float, seconds: dict[str, float], samples: float, batches: float, learners: int
    ) -> None:
        """Add an iteration that ``took`` these seconds; each of ``learners`` threads had one."""
        if learners > 1:
            seconds = {phase: time / learners for phase, time in seconds.items()}
        for _ in range(learners):
            self.counts.time(took / learners, seconds, samples / learners, batches / learners)


_REGULAR_WITHOUT_LOADER = [
    Recorder.number,
    Recorder.begin_backward,
    Recorder.leave,
    Recorder.begin_update,
    Recorder.leave,
    Recorder.step,
]

_REGULAR = [
    Recorder.begin_data,
    Recorder.leave,
    Recorder.add_batch,
    *_REGULAR_WITHOUT_LOADER[1:],
]


def _count_repetitions(
    events: list[Any], position: int, methods: list[Any], leader: int | None
) -> int:
    """Count how often ``methods`` follow each other in ``events`` from ``position`` on, each time
    with ``leader`` as the last argument.
    """
    length = 2 * len(methods)
    count = (len(events) - position) // length
    end = position + count * length
    is_whole = events[position:end:2] == methods * count
    if is_whole and events[position + length - 1 : end : length] == [leader] * count:
        return count  # usually all do: one comparison is faster than one for each iteration
    count, end = 0, position
    while events[end : end + length : 2] == methods and events[end + length - 1] == leader:
        count, end = count + 1, end + length
    return count


REGULAR_BEGINS = (Recorder.begin_data, Recorder.number)
"""Methods that begin a regular iteration."""
