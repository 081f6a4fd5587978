"""Accelerate: a training that resumes at its place in the data, on any number of ranks.

Accelerate has no loop, but all that a loop does with its training loader goes through what
`Accelerator.prepare` has returned: the loader, the optimizer, the schedule. So the loader uses
hops' order of samples and the first run's number of samples per step, and in a later run, completed
passes have no batches. A script whose loops cannot be repeated like this, or that resumes by
itself, is left alone. Written for accelerate 1.15 (``accelerator.py``, ``data_loader.py``,
``state.py``, ``scheduler.py``, ``checkpointing.py``).
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import inspect
import json
import linecache
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from hops_profiler import environment
from hops_profiler.checkpoint.folder import save
from hops_profiler.checkpoint.leaving import leave
from hops_profiler.checkpoint.size import size_of
from hops_profiler.checkpoint.wishes import SignalFlag, broadcast, first, several
from hops_profiler.data.kept import keeps_steps
from hops_profiler.data.order import Share
from hops_profiler.data.source import Position
from hops_profiler.frameworks import request
from hops_profiler.frameworks.loader_order import (
    PASSED_ON,
    EvenSampler,
    batches_per_epoch,
    is_plain,
    order_of,
    shuffles,
    weighted_parts,
)
from hops_profiler.frameworks.own import OwnCheckpoints
from hops_profiler.frameworks.script_loops import why_not_repeated

_PLACE = "place.json"

_RESUMES = ("load_state(", "skip_first_batches(")
"""Calls of a script that resumes by itself."""

_LOADS = frozenset({"load_state", "load_accelerator_state", "load_state_dict", "load_model"})


@dataclass(frozen=True)
class TrainingPosition:
    """Where a training is, after ``offset`` steps of pass ``epoch``, and what its first run used:
    ``ranks``, ``micro_batch``, samples per step and the seed of their order.
    """

    global_batch: int
    seed: int
    ranks: int
    micro_batch: int
    epoch: int = 0
    offset: int = 0

    @classmethod
    def from_dict(cls, content: Any) -> TrainingPosition | None:
        """Read what `asdict` made; None for anything else."""
        try:
            place = cls(**content)
        except TypeError:
            return None
        return place if all(type(value) is int for value in asdict(place).values()) else None

    @classmethod
    def read(cls, checkpoint: Path) -> TrainingPosition | None:
        try:
            return cls.from_dict(json.loads((checkpoint / _PLACE).read_text()))
        except (OSError, ValueError):
            return None


class Training:
    """The only training of ``accelerator`` and its script; see `begin_training`."""

    def __init__(
        self, accelerator: Any, dataloader: Any, own_checkpoints: OwnCheckpoints, turn: request.Turn
    ) -> None:
        self._accelerator, self._own_checkpoints, self._turn = accelerator, own_checkpoints, turn
        batch, ranks = dataloader.batch_size, accelerator.num_processes
        global_batch = _global_batch(accelerator, dataloader)
        now = TrainingPosition(global_batch, torch.initial_seed() % 2**62, ranks, batch)
        latest, place = broadcast(self._look(now) if first() else None)
        self._checkpoint: Path | None = latest
        self._first: TrainingPosition = place
        self._order = order_of(dataloader, place.global_batch, place.seed)
        self.share = Share(accelerator.process_index, ranks, batch)
        self._script_accumulates = accelerator.gradient_accumulation_steps > 1
        accelerator.gradient_accumulation_steps = len(weighted_parts(self._order, self.share, 0))
        self.loader = _loader(accelerator, dataloader, self)
        self.reason = ""
        """Why the training cannot leave and resume; "" if it can."""
        self._signal_flag = SignalFlag(signal.SIGUSR1)
        self._request = request.LeaveRequest(self._signal_flag)
        self._epoch = -1
        self._parts: list[tuple[Any, Any]] = []
        self.weight = 1.0
        self.is_catching_up = latest is not None
        self.backwards = self.steps = 0
        self.saves = False
        atexit.register(self.end, os.getpid())

    def _look(self, now: TrainingPosition) -> tuple[Path | None, TrainingPosition]:
        latest = self._own_checkpoints.latest() if environment.restarts() else None
        place = TrainingPosition.read(latest) if latest else None
        if latest and place and self._own_checkpoints.take():
            self._own_checkpoints.clear(latest)
            return latest, place
        first_place = TrainingPosition.from_dict(self._own_checkpoints.first_note(asdict(now)))
        return None, replace(first_place or now, epoch=0, offset=0)

    def steps_done(self, epoch: int) -> int:
        """Return how many steps of a pass are done."""
        place = self._first
        if epoch != place.epoch:
            return self._order.steps_per_epoch if epoch < place.epoch else 0
        return place.offset

    def batches(self) -> Iterator[list[int]]:
        """Yield the sample numbers of each batch of the current pass."""
        sampler = EvenSampler(self._order)
        sampler.begin(Position(self._epoch, self.steps_done(self._epoch)), self.share)
        return iter(sampler)

    @property
    def skipped_batches(self) -> int:
        """Batches of the current pass that previous runs have done, in terms of this run's."""
        return self.steps_done(self._epoch) * int(self._accelerator.gradient_accumulation_steps)

    @property
    def batches_per_pass(self) -> int:
        """Batches of a pass on this run's ranks."""
        return batches_per_epoch(self._order, self.share)

    def __len__(self) -> int:
        """Batches of a pass in the first run, from which a script computes its schedule."""
        share = Share(0, self._first.ranks, self._first.micro_batch)
        return batches_per_epoch(self._order, share)

    def pass_over(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield what the script's loop gets from a pass with ``batches``."""
        self._epoch += 1
        epoch = self._epoch
        if not epoch:
            self._begin()
        if self.is_catching_up and epoch == self._first.epoch:
            self.is_catching_up = False
        for step in range(self.steps_done(epoch), self._order.steps_per_epoch):
            parts = weighted_parts(self._order, self.share, step)
            for number, (_, weight) in enumerate(parts):
                batch = next(batches)
                self._before(weight, is_last=number + 1 == len(parts))
                yield batch
                self._after()
            self._step_done(epoch, step + 1)
        for _ in batches:  # none are left: lets the loader end its pass
            pass

    def _begin(self) -> None:
        """Begin the first pass, when all has been prepared."""
        accelerator = self._accelerator
        if len(accelerator._optimizers) != 1:
            self.keep_out("it has not one optimizer")
        if not accelerator._schedulers and any(map(_is_scheduled, accelerator._optimizers)):
            self.keep_out("its schedule was not prepared")
        if reason := why_not_repeated():
            self.keep_out(reason)
        if not self.reason:
            keeps_steps("Accelerate")
        if self._checkpoint is None:
            return
        try:
            with self._as_one_rank():
                accelerator.load_state(str(self._checkpoint))
        except Exception as failure:
            if request.failed_in(_LOADS, failure):
                request.unusable(self._own_checkpoints, failure, first=first())
            raise
        accelerator.wait_for_everyone()  # the first rank removes the checkpoint if no step is left
        accelerator.step = 0

    def _before(self, weight: float, *, is_last: bool) -> None:
        self.weight, self.backwards, self.steps = weight, 0, 0
        self._accelerator.gradient_state._set_sync_gradients(is_last)
        for model in self._accelerator._models:
            if hasattr(model, "require_backward_grad_sync"):
                model.require_backward_grad_sync = is_last

    @contextlib.contextmanager
    def adding_up(self) -> Iterator[None]:
        """Enter this around a backward pass. A script that does not accumulate must handle its
        gradients (clip them with PyTorch, log them, zero those of the model) once per step, so
        partial gradients are hidden until then.
        """
        for parameter, part in self._parts:
            parameter.grad = part
        self._parts = []
        yield
        if not self._accelerator.sync_gradients and not self._script_accumulates:
            parameters = [
                parameter for model in self._accelerator._models for parameter in model.parameters()
            ]
            self._parts = [
                (parameter, parameter.grad)
                for parameter in parameters
                if parameter.grad is not None
            ]
            for parameter, _ in self._parts:
                parameter.grad = None

    def _after(self) -> None:
        if (self.backwards, self.steps) != (1, 1):
            self.keep_out("it does not step its optimizer once after each batch's backward pass")
        self.weight = 1.0

    def _step_done(self, epoch: int, offset: int) -> None:
        if self.reason or not self._request.is_due():
            return
        place = replace(self._first, epoch=epoch, offset=offset)
        final = self._own_checkpoints.at(epoch * self._order.steps_per_epoch + offset)
        request.try_to_save(
            self._own_checkpoints, final, lambda at: self._save(at, place), self._request
        )
        atexit.unregister(self.end)
        leave(first=first())

    def _save(self, final: Path, place: TrainingPosition) -> None:
        accelerator = self._accelerator
        if broadcast(self._turn.is_shared() if first() else None):
            raise OSError("another training of the job runs in the same folder")
        if first():
            self._own_checkpoints.sign(final)
        models = [accelerator.unwrap_model(model) for model in accelerator._models]
        tensors = [[list(model.parameters()), list(model.buffers())] for model in models]
        states = [model.optimizer.state for model in accelerator._optimizers]

        def write(folder: Path) -> None:
            with self._as_one_rank():
                accelerator.save_state(str(folder))
            if first():
                (folder / _PLACE).write_text(json.dumps(asdict(place)))

        save(final, 0 if several() else size_of([tensors, states]), write)

    @contextlib.contextmanager
    def _as_one_rank(self) -> Iterator[None]:
        """Let states have the names of one rank, and be saved to the folder given."""
        accelerator, self.saves = self._accelerator, True
        project, models = accelerator.project_configuration, accelerator._models
        automatic, iteration = project.automatic_checkpoint_naming, project.iteration
        project.automatic_checkpoint_naming = False
        accelerator._models = [accelerator.unwrap_model(model) for model in models]
        try:
            yield
        finally:
            accelerator._models, self.saves = models, False
            project.automatic_checkpoint_naming, project.iteration = automatic, iteration

    def keep_out(self, reason: str) -> None:
        """Let the training leave only after the script's own saves. Later runs are as without hops,
        since what does not fit may count batches.
        """
        if not self.reason:
            self.reason = reason
            self._signal_flag.listen_no_more()
            if first():
                self._own_checkpoints.decline()
                sys.stderr.write(
                    f"hops: this training is not saved on request: {reason}. If it saves by itself,"
                    " it leaves after that\n"
                )

    def schedule_steps(self) -> int:
        """How often a schedule steps with the optimizer, as in the first run."""
        return self._first.ranks

    def end(self, process: int | None = None) -> None:
        """Clean up when the training has ended, or the process ends without an error."""
        by_error = hasattr(sys, "last_type") or process not in (None, os.getpid())
        if not by_error and not self.reason and first():
            self._own_checkpoints.remove()
        self._signal_flag.listen_no_more()
        if process == os.getpid():
            request.ignore()


def _loader(accelerator: Any, dataloader: Any, training: Training) -> Any:
    """Make Accelerate's own loader with hops' batches."""
    module = importlib.import_module("accelerate.data_loader")

    class KeptLoader(module.DataLoaderShard):  # type: ignore[misc,name-defined]
        def __iter__(self) -> Iterator[Any]:
            return training.pass_over(super().__iter__())

        def __len__(self) -> int:
            return len(training)

    options = {name: getattr(dataloader, name) for name in PASSED_ON}
    place = accelerator.device if accelerator.device_placement else None
    kept_loader = KeptLoader(
        dataloader.dataset,
        device=place,
        batch_sampler=_Batches(training),
        rng_types=None,
        **options,
    )
    kept_loader._is_accelerate_prepared = True
    return kept_loader


class _Batches:
    """This rank's batches of the current pass. The length is that of a whole pass in this run, from
    which the timing plugin derives the length of the training.
    """

    def __init__(self, training: Training) -> None:
        self._training = training

    def __len__(self) -> int:
        return self._training.batches_per_pass

    def __iter__(self) -> Iterator[list[int]]:
        return self._training.batches()

    @property
    def skipped_batches(self) -> int:
        """Batches of the current pass that previous runs have done."""
        return self._training.skipped_batches


def begin_training(accelerator: Any, dataloader: Any) -> Training | None:
    """Begin the training that ``dataloader`` is prepared for, in hops' order; None if it is not a
    training loader, or hops' order does not fit. Called on all ranks.
    """
    if not _fits(accelerator, dataloader):
        return None
    base = Path(accelerator.project_dir or ".").resolve()
    turn, own_checkpoints = request.Turn(base), OwnCheckpoints(request.folder_in(base), _PLACE)
    if not broadcast(turn.take() and own_checkpoints.is_usable() if first() else None):
        return None
    return Training(accelerator, dataloader, own_checkpoints, turn)


def _is_scheduled(optimizer: Any) -> bool:
    """Whether the optimizer has a PyTorch schedule, made before or after it was prepared."""
    steps = [optimizer.step, optimizer.optimizer.step]
    marks = ("_wrapped_by_lr_sched", "_with_counter")  # since PyTorch 2.4; earlier
    return any(hasattr(step, mark) for step in steps for mark in marks)


def _global_batch(accelerator: Any, dataloader: Any) -> int:
    """Samples per step as the script has it, on the present ranks."""
    batch_per_rank: int = dataloader.batch_size * accelerator.gradient_accumulation_steps
    return batch_per_rank * int(accelerator.num_processes)


def _fits(accelerator: Any, dataloader: Any) -> bool:
    kind = getattr(accelerator.distributed_type, "value", "")
    return bool(
        is_plain(dataloader)
        and shuffles(dataloader)  # loaders for evaluation do not
        and order_of(dataloader, _global_batch(accelerator, dataloader), 0).steps_per_epoch
        and kind in ("NO", "MULTI_GPU", "MULTI_CPU")
        and not accelerator.split_batches
        and not accelerator.dispatch_batches
        and not accelerator.use_stateful_dataloader
        and accelerator.gradient_state.sync_with_dataloader
        and environment.learning_rate() is None  # else the script's batch may follow the GPUs
        and not _resumes_by_itself()
        and request.possible(accelerator.num_processes)
    )


def _resumes_by_itself() -> bool:
    """Whether the caller is another framework, or a script that resumes from its own states."""
    frame = inspect.currentframe()
    while frame is not None:
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if package not in ("accelerate", "hops_profiler"):
            text = "".join(linecache.getlines(frame.f_code.co_filename))
            return package == "transformers" or any(word in text for word in _RESUMES)
        frame = frame.f_back
    return True
