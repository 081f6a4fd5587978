"""Hooks into PyTorch: batches, backward passes, optimizer steps.

Every hook calls PyTorch with the same arguments, and reads a clock before and after. An error
in a hook of ours switches the profiler off and never affects training. What a signal's handler of
the program raises meanwhile is the program's.

A hook only notes what happened: a method of the recorder and its argument. The recorder is told of
several short iterations together.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections import deque
from collections.abc import Callable
from threading import RLock, get_ident
from time import perf_counter
from typing import Any

import torch
from hops_profiler.timing.batch import samples_of
from hops_profiler.timing.graphless import GraphlessBlocks
from hops_profiler.timing.handlers import calls, is_below, raised_by_one
from hops_profiler.timing.inputs import Inputs, compiling
from hops_profiler.timing.layout import sharing
from hops_profiler.timing.recorder import UNSEEN, USUAL_LENGTH, Recorder
from torch.optim import optimizer as optim
from torch.utils.data import dataloader

begin_data, fetched, ran_out = Recorder.begin_data, Recorder.fetched, Recorder.ran_out
begin_backward, looked = Recorder.begin_backward, Recorder.looked
stepped_elsewhere, ran_without_graph = Recorder.stepped_elsewhere, Recorder.ran_without_graph
begin_update, abandoned, stepped = Recorder.begin_update, Recorder.abandoned, Recorder.stepped
leave, evaluates = Recorder.leave, Recorder.evaluates

LOOKS = (1, 2)
"""Iterations after which the forward passes' inputs are inspected; those are not timed."""

LOOK_AGAIN = 23
"""Every how many iterations the input is inspected again if no loader shows the batch: a prime
number, as rollouts and the like come after round ones."""

EARLY_LOOKS = (5, 8, 11, 13)
"""Iterations after which the input is inspected, too, if no loader shows it: it may vary."""

PRIMES = (1, 3, 5, 7, 11, 13, 17, 19)
"""Without two, which would see the same half of a rollout's four or eight minibatches."""

LOOK_SECONDS, LOOK_SHARE = 100e-6, 0.005
"""What a look costs besides the calls, and the largest share of the time for looks at inputs that
vary."""

MOST_OPTIMIZERS = 1024

MOST_AHEAD = 4096
"""Batches that a loader's workers are asked for ahead of the loop."""

SINGLY = 14
"""First iterations, whose events are told at once."""

TOGETHER = 64
"""Steps whose events the recorder is told together: its code has left the processor's caches by the
next iteration, which makes it three times as slow."""

TOGETHER_SECONDS = 0.1
"""The first step after so long is told, with those before it."""

MOST_NOTED = 2000
"""More methods and arguments are told wherever the loop is: an evaluation has no steps."""


class Hooks:
    """Feeds ``recorder``; calls ``iterated`` after each iteration, or after several short ones.

    ``failure`` says why it stopped. ``params`` counts the parameters that the optimizers train,
    ``optimizers`` those that were created, ``sharing`` the ranks that train on the same batch. Only
    the training thread is timed; a batch that another thread fetches for it counts.
    ``together``: of so many steps the recorder is told together.
    """

    def __init__(self, recorder: Recorder, iterated: Callable[[], None]) -> None:
        self.failure = ""
        self.off = False
        self.optimizers = 0
        self.sharing = 1
        self.together = TOGETHER
        self._gate: Callable[[int], int] | None = None
        self._ended = self._granted = 0  # iterations since the gate was called; that it let pass
        self._recorder = recorder
        self._iterated = iterated
        self._inputs = Inputs()
        self._graphless = GraphlessBlocks()
        # Methods and their arguments in turn: tuples of them would keep the garbage collector busy.
        self._events: list[Any] = []
        self._note = self._events.extend
        self._telling: Any = RLock()
        self._at_once = True  # each event is told
        self._left, self._due = 0, 0.0  # steps and time until the recorder is told
        self._thread: int | None = None
        self._stepping: int | None = None
        self._step: Any = None  # the code around every optimizer's step, PyTorch's
        self._look_seconds = LOOK_SECONDS
        self._learners: dict[int, bool] = {}  # other threads, since a backward pass of theirs
        self._trained: dict[int, int] = {}
        self._reading: Callable[[], Any] = _nothing
        self._sizes: Any = None

    @property
    def recorder(self) -> Recorder:
        """Told of all so far."""
        self._tell()
        return self._recorder

    @property
    def trains(self) -> bool:
        """True once a step or many backward passes were told of. Needs no lock."""
        return self._recorder.trains

    @property
    def steps(self) -> int:
        """Iterations that the recorder was told of. Needs no lock, as the next two."""
        return self._recorder.counts.iterations

    @property
    def evaluating(self) -> bool:
        """True if a model was put into the mode for that since the last step."""
        return self._recorder.evaluating or evaluates in self._events

    @property
    def thread(self) -> int | None:
        """The thread that trains; None before the first step."""
        return self._thread

    @property
    def params(self) -> int:
        return sum(self._trained.values())

    @property
    def reading(self) -> tuple[int, int] | None:
        """Batches that the loader last read from has given, and has in all, in its present pass;
        those that a resumed pass leaves out (`skipped_batches` of its sampler) count as given.
        """
        loader = self._reading()
        try:
            skipped = getattr(loader._index_sampler, "skipped_batches", 0)
            return skipped + loader._num_yielded, len(loader)
        except Exception as error:  # gone, or of unknown length, or the program's sampler raises
            if raised_by_one(error):
                raise
            return None

    def attach(self) -> None:
        """Install the hooks, until the end of the process."""
        self._attach_loader()
        self._attach_backward()
        self._attach_modes()
        self._attach_grad_modes()
        self._inputs.attach()
        optim.register_optimizer_step_pre_hook(self._step_begins)
        optim.register_optimizer_step_post_hook(self._step_ends)

    def stop_at(self, gate: Callable[[int], int]) -> None:
        """Have ``gate`` called with how many iterations optimizers' steps have ended since. It
        returns after how many it is to be called again, at that iteration's end and not later; it
        may be called before. Steps within a backward pass, or another's closure, end later.
        """
        self._gate, self._at_once = gate, True
        self._ended, self._granted = 0, 1

    def pause(self) -> None:
        """Measure no more, unless a gate is to be called."""
        self.off = self.off or self._gate is None

    def begin_anew(self, recorder: Recorder, *, forked: bool = False) -> None:
        """Forget everything so far: a measured block begins, or a ``forked`` process."""
        if forked:
            self._telling = RLock()  # another thread may have held it
        else:
            self._tell()  # the gate counts these
        with self._telling:
            self._inputs.rest()
            self._graphless.forget()
            self._events.clear()
            self._recorder, self._at_once = recorder, True
            self._thread = self._stepping = None
            self._trained, self.sharing, self._reading, self._sizes = {}, 1, _nothing, None
            self.off = bool(self.failure)

    def _fail(self, error: Exception) -> None:
        if raised_by_one(error):
            raise error
        self._inputs.rest()
        self._events.clear()
        self.off, self.failure = True, self.failure or repr(error)[:500]

    def _attach_loader(self) -> None:
        """Hook into loaders: batches, and how many samples the loader put into each."""
        kind: Any = dataloader._BaseDataLoaderIter
        fetch, next_index, reset = kind.__next__, kind._next_index, kind._reset

        note, events = self._note, self._events

        @functools.wraps(fetch)
        def next_batch(loader: Any) -> Any:
            if self.off:
                return fetch(loader)
            if self._thread is not None and self._thread != get_ident():
                batch, now = fetch(loader), 0.0
            else:
                if self._stepping is not None and not calls(self._step):
                    self._abandon_step()
                note((begin_data, perf_counter()))
                try:
                    if self._at_once:
                        self._tell()
                    batch = fetch(loader)
                except BaseException as error:
                    note((leave, perf_counter()))
                    if isinstance(error, StopIteration):
                        note((ran_out, None))
                    raise
                now = perf_counter()
            try:
                sizes = loader.__dict__.get("_hops_sizes")
                if sizes is not self._sizes or not sizes:
                    self._sizes, self._reading = sizes, weakref.ref(loader)
                size = (sizes and sizes.popleft()) or samples_of(batch)
                note((leave, now, fetched, size) if now else (fetched, size))
                if self._at_once:
                    if self._tell():
                        self._iterated()
                elif len(events) > MOST_NOTED:
                    self._tell()
            except Exception as error:
                self._fail(error)
            return batch

        @functools.wraps(next_index)
        def next_sampled(loader: Any) -> Any:
            index = next_index(loader)
            try:
                # A sampler may yield any iterable.
                size = len(index) if loader._auto_collation and hasattr(index, "__len__") else 0
                sizes = loader.__dict__.get("_hops_sizes")
                if sizes is None:
                    sizes = loader.__dict__["_hops_sizes"] = deque(maxlen=MOST_AHEAD)
                sizes.append(size)
            except Exception as error:
                self._fail(error)
            return index

        @functools.wraps(reset)
        def reset_sizes(loader: Any, *args: Any, **kwargs: Any) -> Any:
            loader.__dict__.pop("_hops_sizes", None)
            return reset(loader, *args, **kwargs)

        kind.__next__, kind._next_index, kind._reset = next_batch, next_sampled, reset_sizes

    def _attach_backward(self) -> None:
        original = torch.autograd.backward
        note, events = self._note, self._events

        @functools.wraps(original)
        def backward(*args: Any, **kwargs: Any) -> Any:
            if self.off or compiling():
                return original(*args, **kwargs)
            if self._elsewhere():
                self._learners[get_ident()] = True
                return original(*args, **kwargs)
            if self._inputs.looking:
                roots = args[0] if args else kwargs.get("tensors")
                note((looked, self._inputs.take(roots)))
            note((begin_backward, perf_counter()))
            try:
                if self._at_once:
                    self._tell()
                return original(*args, **kwargs)
            finally:
                note((leave, perf_counter()))
                if self._at_once:
                    if self._tell():
                        self._end_iteration()
                elif len(events) > MOST_NOTED:
                    self._tell()

        torch.autograd.backward = backward

    def _attach_modes(self) -> None:
        """Hook into the calls that begin a training or an evaluation."""
        evaluate, make = torch.nn.Module.eval, optim.Optimizer.__init__
        events = self._events

        @functools.wraps(evaluate)
        def evaluated(module: Any) -> Any:
            if not (self.off or compiling()):
                self._note((evaluates, None))
                if len(events) > MOST_NOTED:
                    self._tell()
            return evaluate(module)

        @functools.wraps(make)
        def initialize(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            make(optimizer, *args, **kwargs)
            self.optimizers += 1

        torch.nn.Module.eval = evaluated  # type: ignore[method-assign, assignment]
        optim.Optimizer.__init__ = initialize  # type: ignore[method-assign, assignment]

    def _attach_grad_modes(self) -> None:
        """Hook into blocks that build no graph, which is where models are evaluated."""
        for kind in (torch.no_grad, torch.inference_mode):
            self._attach_grad_mode(kind)

    def _attach_grad_mode(self, kind: Any) -> None:
        enter, exit_ = kind.__enter__, kind.__exit__
        graphless = self._graphless

        @functools.wraps(enter)
        def entered(block: Any) -> Any:
            if not compiling():
                block._hops_began = perf_counter()
            return enter(block)

        @functools.wraps(exit_)
        def exited(block: Any, *error: Any) -> Any:
            result = exit_(block, *error)
            if not (self.off or compiling() or self._elsewhere()):
                took = perf_counter() - getattr(block, "_hops_began", float("inf"))
                counts, frame = self._recorder.counts, sys._getframe(1)
                evaluation = graphless.add(counts, self._left, took, frame)
                if evaluation is not None:
                    self._note((ran_without_graph, evaluation))
            return result

        kind.__enter__, kind.__exit__ = entered, exited

    def _elsewhere(self) -> bool:
        """True in another thread than the one that trains."""
        return self._thread is not None and self._thread != get_ident()

    def _tell(self) -> bool:
        """Tell the recorder of all events so far. True if the last one ended an iteration."""
        events, recorder, ends_iteration, position = self._events, self._recorder, False, 0
        lock = self._telling
        # A save in another thread, or in a signal's handler, may ask for the counts in the middle.
        # A handler may also raise anywhere: before Python 3.10 even `with` may keep the lock then.
        if lock._is_owned():
            if is_below(Hooks._tell, Hooks.begin_anew):
                return False
            while lock._is_owned():
                lock.release()
        with lock:
            try:
                while position < len(events):
                    begins = events[position] is begin_data
                    several = recorder.usual(events, position) if begins else 0
                    if several:
                        self._ended += several // USUAL_LENGTH
                        position += several
                        ends_iteration = True
                        continue
                    method, argument = events[position], events[position + 1]
                    position += 2
                    ends_iteration = method(recorder, argument)
                    if ends_iteration and method is stepped:
                        self._ended += 1
            except Exception as error:
                self._fail(error)
            finally:
                del events[:position]
        return ends_iteration

    def _step_begins(self, optimizer: Any, *_: Any) -> None:
        if self.off or compiling() or self._elsewhere():
            return
        self._step = sys._getframe(1).f_code
        if self._stepping is not None and calls(self._step) < 2:  # this one, and that
            self._abandon_step()
        self._stepping = id(optimizer)
        self._note((begin_update, perf_counter()))
        if self._at_once:
            try:
                self._tell()
            except BaseException:  # a handler's: the step does not begin
                self._note((leave, perf_counter()))
                raise

    def _abandon_step(self) -> None:
        """The last step that began is over, but has not ended: the script caught what it raised."""
        self._stepping = None
        self._note((abandoned, None))

    def _step_ends(self, optimizer: Any, *_: Any) -> None:
        if self.off or compiling():
            return
        if self._elsewhere():
            if self._learners.pop(get_ident(), False):
                self._note((stepped_elsewhere, id(optimizer)))
            return
        now, key = perf_counter(), id(optimizer)
        if self._stepping == key:
            self._stepping = None
            if key not in self._trained:
                self._meet(optimizer)
            self._note((leave, now, stepped, key))
            self._left -= 1
        else:  # its base class's step, which it calls, has already counted it
            self._note((leave, now))
        if self._left <= 0 or self._at_once or now >= self._due:
            self._left = 0  # where no iteration ends with it, the next step is told, too
            if self._tell():
                self._end_iteration()
            if self._gate is not None:
                self._ask(self._gate)

    def _ask(self, gate: Callable[[int], int]) -> None:
        """Call the gate, if an iteration has ended. No more steps are told together than it lets
        pass, as each may end one: so it is called at the end of the last that it lets pass.

        Another thread may have told of the step that ended it: ranks meet at the gate.
        """
        left, self._left = self._left, 0  # what a handler raises in the gate leaves it so
        if self._ended and not self._recorder.within:
            ended, self._ended, self._granted = self._ended, 0, 1
            self._granted = gate(ended)
        self._left = min(left, self._granted - self._ended)

    def _meet(self, optimizer: Any) -> None:
        """Note an optimizer that steps for the first time."""
        try:
            if len(self._trained) < MOST_OPTIMIZERS:
                self._thread = self._thread or get_ident()
                self._trained[id(optimizer)] = _params(optimizer)
                self.sharing = max(self.sharing, sharing(optimizer))
        except Exception as error:
            self._fail(error)

    def _end_iteration(self) -> None:
        """The last event that the recorder was told ended an iteration."""
        try:
            recorder = self._recorder
            self._thread = self._thread or get_ident()
            recorder.present()
            done = recorder.counts.iterations
            look = done in LOOKS
            if self._inputs.looking:
                self._look_seconds = LOOK_SECONDS + self._inputs.seconds
            every = _look_every(recorder, self._look_seconds)
            if not recorder.reads:
                look = look or done in (*EARLY_LOOKS, UNSEEN) or done % every == 0
            if look:
                self._inputs.look(again=done > UNSEEN)
            else:
                self._inputs.rest()
            self._iterated()
            self._at_once = done < SINGLY or look or not recorder.steady or recorder.marking
            # Where batches are read there is nothing to look at after the first iterations.
            left = self.together if recorder.reads else every - done % every
            self._left = min(self.together, left)
            self._due = perf_counter() + TOGETHER_SECONDS
        except Exception as error:
            self._fail(error)


def _look_every(recorder: Recorder, seconds: float) -> int:
    """Every how many iterations the input is inspected, which takes so many ``seconds``: more often
    where it varies, as far as that costs no more than LOOK_SHARE of the time.
    """
    usual = recorder.counts.iteration.mean
    if not recorder.varies or not usual:
        return LOOK_AGAIN
    fewest = seconds / (LOOK_SHARE * usual)
    return next((every for every in PRIMES if every >= fewest), LOOK_AGAIN)


def _nothing() -> None:
    """Stands for a loader that is gone."""


def _params(optimizer: Any) -> int:
    return sum(p.numel() for group in optimizer.param_groups for p in group["params"])
