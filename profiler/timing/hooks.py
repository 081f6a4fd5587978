"""Hooks into PyTorch: batches, backward passes, optimizer steps.

Every hook calls PyTorch with the same arguments, and reads a clock before and after. An error in
one of our hooks turns the profiler off and never affects training. Exceptions raised by the
program's signal handlers propagate.

A hook only appends an event to a queue (`events.py`): a method of the recorder and its argument.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from threading import get_ident
from time import perf_counter
from types import FrameType
from typing import Any

import torch
from hops_profiler.timing import graphless
from hops_profiler.timing.counts import WARMUP
from hops_profiler.timing.events import MAX_EVENTS, EventQueue
from hops_profiler.timing.gate import StepGate
from hops_profiler.timing.gradients import KeptGradient
from hops_profiler.timing.handlers import calls, raised_by_one
from hops_profiler.timing.inputs import Inputs, is_compiling, is_tracing
from hops_profiler.timing.inspections import INSPECTION_SECONDS, InspectionPlan
from hops_profiler.timing.layout import ranks_of_batch, shards
from hops_profiler.timing.loader import LoaderSizes
from hops_profiler.timing.optimizers import MAX_OPTIMIZERS, OptimizerKeys
from hops_profiler.timing.passes import number_of_loss, rows_of_loss
from hops_profiler.timing.recorder import BACKWARDS_WITHOUT_STEP, Recorder
from hops_profiler.timing.rows import SameRows
from torch.optim import optimizer as optim
from torch.utils.data import dataloader

begin_data, begin_backward = Recorder.begin_data, Recorder.begin_backward
begin_update, leave, abandon = Recorder.begin_update, Recorder.leave, Recorder.abandon
add_batch, end_loader, inspect = Recorder.add_batch, Recorder.end_loader, Recorder.inspect
add_batch_elsewhere, read_graphless = Recorder.add_batch_elsewhere, (Recorder.read_graphless, None)
add_evaluation, add_graphless = Recorder.add_evaluation, Recorder.add_graphless
step, step_elsewhere, retire = Recorder.step, Recorder.step_elsewhere, Recorder.retire
read_loss, number, switched = Recorder.read_loss, Recorder.number, (Recorder.switch_loader, None)
clear_gradients, keep_gradients = Recorder.clear_gradients, Recorder.keep_gradients

MAX_PAUSES = 32
"""Maximum number of possible evaluations that are inspected."""

UNBATCHED_ITERATIONS = 14
"""Number of first iterations whose events are flushed immediately."""

BATCH_STEPS = 64
"""Number of steps whose events are flushed together."""

TENSOR = "_tensor.py"
"""PyTorch file that defines the methods of tensors."""

BATCH_SECONDS = 0.1
"""The first step after this time flushes, too."""


class Hooks:
    """Feeds ``recorder``; calls ``report`` after each iteration, or after several short ones.

    Only the training thread is timed; batches that another thread fetches for it count.

    ``failure`` says why the hooks stopped. ``params`` is the number of parameters that the
    optimizers train, ``optimizers`` the number of optimizers created. ``batch_steps`` is the number
    of steps flushed together, ``stages`` that of pipeline stages. ``rows`` compares what the ranks
    read. ``layer_ranks`` ranks share layers, in ``row_groups`` groups with a batch each.
    ``has_shards`` says that PyTorch shards parameters and knows what the ranks share.
    """

    def __init__(self, recorder: Recorder, report: Callable[[], None]) -> None:
        self.failure = ""
        self.is_off = False
        self.stages = self.layer_ranks = self.row_groups = 1
        self.has_shards = False
        self.batch_steps = BATCH_STEPS
        self._report = report
        self._queue = EventQueue(recorder, self._fail)
        self._gate = StepGate(self._queue)
        self._loader = LoaderSizes(self._fail)
        self._inputs = Inputs(self._clear_gradients)
        self._inspections = InspectionPlan()
        self._gradient = KeptGradient()
        self._graphless = graphless.GraphlessBlocks()
        self._thread: int | None = None
        self._optimizer_id: int | None = None
        self._step_code: Any = None  # PyTorch's code around every optimizer's step
        self._learners: dict[int, bool] = {}  # other threads between a backward pass and its step
        self._params: dict[int, int] = {}  # by key of the optimizer
        self.rows = SameRows()
        self._keys = OptimizerKeys()
        self._pauses_left = MAX_PAUSES
        self._numbers = True  # note the first node's number of each backward pass
        self._reads_losses = False

    @property
    def recorder(self) -> Recorder:
        """The recorder, once it has processed all events so far."""
        self._queue.flush()
        return self._queue.recorder

    @property
    def trains(self) -> bool:
        """True once a step or many backward passes were processed. Needs no lock."""
        return self._queue.recorder.trains

    @property
    def steps(self) -> int:
        """Iterations that the recorder has processed. Needs no lock, like the next two."""
        return self._queue.recorder.counts.iterations

    @property
    def evaluating(self) -> bool:
        """True if a model was put into evaluation mode since the last step."""
        return self._queue.recorder.evaluating or add_evaluation in self._queue.events

    @property
    def thread(self) -> int | None:
        """The thread that trains; None before the first step."""
        return self._thread

    @property
    def sharing(self) -> int:
        """Number of ranks that train on the same batch."""
        return max(self.stages, self.layer_ranks // self.row_groups, self.rows.sharing)

    @property
    def optimizers(self) -> int:
        return self._keys.created

    @property
    def params(self) -> int:
        return sum(self._params.values())

    @property
    def loader_progress(self) -> tuple[int, int] | None:
        """See :attr:`LoaderSizes.progress`."""
        return self._loader.progress

    def attach(self) -> None:
        """Install the hooks, until the end of the process."""
        self._loader.attach()
        self._attach_loader()
        self._attach_backward()
        self._attach_modes()
        graphless.attach(self._begin_graphless, self._add_graphless)
        self._inputs.attach()
        optim.register_optimizer_step_pre_hook(self._begin_step)
        optim.register_optimizer_step_post_hook(self._end_step)

    def stop_at(self, gate: Callable[[int], int]) -> None:
        """Call ``gate`` between iterations; see :class:`StepGate`."""
        self._gate.open(gate)

    def pause(self) -> None:
        """Stop measuring, unless a gate has to be called."""
        self.is_off = self.is_off or self._gate.gate is None
        if self.is_off:
            self._inputs.rest()

    def restart(self, recorder: Recorder, *, in_child: bool = False) -> None:
        """Forget everything, for a new measured block or in a forked process (``in_child``)."""
        self._queue.restart(recorder, in_child=in_child)
        self._inputs.rest()
        self._graphless.forget()
        self._loader.forget()
        self._gradient = KeptGradient()
        self._thread = self._optimizer_id = None
        self._params = {}
        self._numbers, self._reads_losses = True, False
        self.stages = self.layer_ranks = self.row_groups = 1
        self.rows = SameRows()
        self.is_off = bool(self.failure)

    def _fail(self, error: Exception) -> None:
        if raised_by_one(error):
            raise error
        self._inputs.rest()
        self._queue.events.clear()
        self.is_off, self.failure = True, self.failure or repr(error)[:500]

    def _is_other_thread(self) -> bool:
        """True if called in another thread than the one that trains."""
        return self._thread is not None and self._thread != get_ident()

    def _attach_loader(self) -> None:
        kind: Any = dataloader._BaseDataLoaderIter
        fetch, sizes, next_size = kind.__next__, self._loader, self._loader.next_size
        queue, extend, events = self._queue, self._queue.extend, self._queue.events

        @functools.wraps(fetch)
        def next_batch(loader: Any) -> Any:
            if self.is_off:
                return fetch(loader)
            if self._thread is not None and self._thread != get_ident():
                batch, now = fetch(loader), 0.0
            else:
                if self._optimizer_id is not None and not calls(self._step_code):
                    self._abandon_step()
                extend((begin_data, perf_counter()))
                try:
                    if queue.immediate:
                        queue.flush()
                    batch = fetch(loader)
                except BaseException as error:
                    extend((leave, perf_counter()))
                    if isinstance(error, StopIteration):
                        extend((end_loader, None))
                    raise
                now = perf_counter()
            try:
                if self.rows.is_open or self._inputs.looking:
                    self._note_batch(batch)
                size = next_size(loader, batch)
                extend((leave, now, add_batch, size) if now else (add_batch_elsewhere, size))
                extend(switched if sizes.switches else ())
                extend(() if torch.is_grad_enabled() else read_graphless)
                if queue.immediate:
                    if queue.flush():
                        self._report()
                elif len(events) > MAX_EVENTS:
                    queue.flush()
            except Exception as error:
                self._fail(error)
            return batch

        kind.__next__ = next_batch

    def _note_batch(self, batch: Any) -> None:
        if self.rows.is_open:
            self.rows.add(batch)
        if self._inputs.looking:
            self._inputs.note_read(batch)

    def _attach_backward(self) -> None:
        original = torch.autograd.backward
        queue, extend, events = self._queue, self._queue.extend, self._queue.events

        @functools.wraps(original)
        def backward(*args: Any, **kwargs: Any) -> Any:
            if self.is_off or is_tracing():
                return original(*args, **kwargs)
            if self._thread is not None and self._thread != get_ident():
                self._learners[get_ident()] = True
                return original(*args, **kwargs)
            if self._numbers:
                roots = args[0] if args else kwargs.get("tensors")
                if self._inputs.looking:
                    gradients = args[1] if len(args) > 1 else kwargs.get("grad_tensors")
                    place = _place(sys._getframe(1))
                    extend((inspect, self._inputs.take(roots, gradients, place)))
                self._note_loss(roots)
            watches = queue.immediate and not queue.recorder.steady
            if watches:
                extend((keep_gradients, self._keeps_gradient(args, kwargs)))
            extend((begin_backward, perf_counter()))
            try:
                if queue.immediate:
                    queue.flush()
                return original(*args, **kwargs)
            finally:
                extend((leave, perf_counter()))
                if watches:
                    self._note_gradient()
                if queue.immediate:
                    if queue.flush():
                        self._end_iteration()
                elif len(events) > MAX_EVENTS:
                    queue.flush()

        torch.autograd.backward = backward

    def _keeps_gradient(self, args: Any, kwargs: Any) -> bool:
        try:
            return self._gradient.is_kept(args[0] if args else kwargs.get("tensors"))
        except Exception as error:
            self._fail(error)
            return False

    def _note_gradient(self) -> None:
        try:
            self._gradient.note()
        except Exception as error:
            self._fail(error)

    def _note_loss(self, roots: Any) -> None:
        """Note what the ``roots`` of a backward pass show directly, if no loader is read."""
        try:
            first = number_of_loss(roots)
            if self._reads_losses and not self._inputs.looking:
                self._queue.extend((read_loss, (first, rows_of_loss(roots))))
            else:
                self._queue.extend((number, first))
        except Exception as error:
            self._fail(error)

    def _clear_gradients(self, parameters: set[int]) -> None:
        self._queue.extend((clear_gradients, parameters))

    def _attach_modes(self) -> None:
        """Hook into the calls that begin a training or an evaluation."""
        evaluate, make = torch.nn.Module.eval, optim.Optimizer.__init__
        queue = self._queue

        @functools.wraps(evaluate)
        def note_evaluation(module: Any) -> Any:
            if not (self.is_off or is_compiling()):
                queue.extend((add_evaluation, None))
                self._look_at_pause()
                if len(queue.events) > MAX_EVENTS:
                    queue.flush()
            return evaluate(module)

        @functools.wraps(make)
        def initialize(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            make(optimizer, *args, **kwargs)
            self._keys.note(optimizer)

        torch.nn.Module.eval = note_evaluation  # type: ignore[method-assign, assignment]
        optim.Optimizer.__init__ = initialize  # type: ignore[method-assign, assignment]

    def _begin_graphless(self, frame: FrameType) -> None:
        if not self.is_off and self._graphless.is_late(frame):
            self._look_at_pause()

    def _look_at_pause(self) -> None:
        """Inspect the model's inputs, as training may pause for an evaluation or a rollout."""
        queue, recorder = self._queue, self._queue.recorder
        if (
            self._pauses_left
            and recorder.steady
            and recorder.counts.iterations >= WARMUP
            and not (recorder.sample_counter.reads or self._inputs.looking)
            and not self._is_other_thread()
        ):
            self._pauses_left -= 1
            try:
                self._inputs.look(search=False)
            except Exception as error:
                self._fail(error)
            queue.steps_left = 0  # the next step ends the inspection

    def _add_graphless(self, took: float, frame: FrameType) -> None:
        if self.is_off or self._is_other_thread():
            return
        queue = self._queue
        place = self._graphless.add(queue.recorder.counts, queue.steps_left, took, frame)
        if place is not None:
            queue.extend((add_graphless, *place))

    def _begin_step(self, optimizer: Any, *_: Any) -> None:
        if self.is_off or is_tracing():
            return
        if self._thread is not None and self._thread != get_ident():
            return
        queue = self._queue
        self._step_code = sys._getframe(1).f_code
        if self._optimizer_id is not None and calls(self._step_code) < 2:  # not a nested step
            self._abandon_step()
        self._optimizer_id = id(optimizer)
        queue.extend((begin_update, perf_counter()))
        if queue.immediate:
            try:
                queue.flush()
            except BaseException:  # a signal handler raised it: the step does not begin
                queue.extend((leave, perf_counter()))
                raise

    def _abandon_step(self) -> None:
        """Close the last step that began but never ended: the script caught its exception."""
        self._optimizer_id = None
        self._queue.extend((abandon, None))

    def _end_step(self, optimizer: Any, *_: Any) -> None:
        if self.is_off or is_tracing():
            return
        queue = self._queue
        if self._thread is not None and self._thread != get_ident():
            if self._learners.pop(get_ident(), False):
                queue.extend((step_elsewhere, self._keys.key(optimizer)))
            return
        now = perf_counter()
        if self._optimizer_id == id(optimizer):
            self._optimizer_id = None
            key = self._keys.key(optimizer)
            if key not in self._params:
                self._register_optimizer(optimizer, key)
            queue.extend((leave, now, step, key))
            queue.steps_left -= 1
        else:  # the step of its base class, which it calls, has already counted it
            queue.extend((leave, now))
        if queue.steps_left <= 0 or queue.immediate or now >= queue.due:
            queue.steps_left = 0  # if this step ends no iteration, the next one flushes, too
            if queue.flush():
                self._end_iteration()
            if self._gate.gate is not None:
                self._gate.visit(self._gate.gate)

    def _register_optimizer(self, optimizer: Any, key: int) -> None:
        """Register an optimizer at its first step."""
        try:
            while self._keys.gone:
                self._queue.extend((retire, self._keys.gone.pop()))
            if len(self._params) < MAX_OPTIMIZERS:
                self._thread = self._thread or get_ident()
                self._params[key] = _params(optimizer)
                self.layer_ranks = max(self.layer_ranks, ranks_of_batch(optimizer))
                self.has_shards = self.has_shards or shards(optimizer)
        except Exception as error:
            self._fail(error)

    def _end_iteration(self) -> None:
        """Report, and plan the next flush, after an iteration ended with the last flushed event."""
        try:
            recorder, queue, plan = self._queue.recorder, self._queue, self._inspections
            self._thread = self._thread or get_ident()
            recorder.begin_on_device()
            iterations = recorder.counts.iterations
            if self._inputs.looking:
                plan.seconds = INSPECTION_SECONDS + self._inputs.seconds
            interval = plan.interval(recorder)
            inspects = plan.is_due(recorder, interval)
            if inspects:
                self._inputs.look(search=iterations <= BACKWARDS_WITHOUT_STEP)
            else:
                self._inputs.rest()
            self._report()
            queue.immediate = (
                iterations < UNBATCHED_ITERATIONS
                or inspects
                or not recorder.steady
                or recorder.marking
            )
            reads = recorder.sample_counter.reads
            self._numbers = not reads or inspects
            self._reads_losses = plan.reads_losses(recorder)
            steps = self.batch_steps if reads else interval - iterations % interval
            queue.steps_left = min(self.batch_steps, steps)
            queue.due = perf_counter() + BATCH_SECONDS
        except Exception as error:
            self._fail(error)


def _place(frame: FrameType) -> Any:
    """Code and offset of the call of `backward` in ``frame``, or of that of `Tensor.backward`."""
    while frame.f_back is not None and frame.f_code.co_filename.endswith(TENSOR):
        frame = frame.f_back
    return frame.f_code, frame.f_lasti


def _params(optimizer: Any) -> int:
    return sum(p.numel() for group in optimizer.param_groups for p in group["params"])
