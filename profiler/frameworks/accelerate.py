"""Accelerate: a plain loop resumes at its place; others leave after their own ``save_state``.

`accelerate_order` says which loops are plain. A script that resumes by itself from its own states
leaves at the next backward pass after a save: scripts write the step of a state after the state,
and the last save belongs to a training that ends. Written for accelerate 1.15
(``accelerator.py``, ``checkpointing.py``).
"""

from __future__ import annotations

import functools
import signal
from datetime import timedelta
from types import ModuleType
from typing import Any

import torch.distributed as dist
from hops_profiler.checkpoint.leaving import leave
from hops_profiler.checkpoint.wishes import SignalFlag, first, several
from hops_profiler.frameworks import request
from hops_profiler.frameworks.accelerate_order import Training, begin_training
from hops_profiler.frameworks.loader_order import is_plain, shuffles
from torch.nn.utils import clip_grad_norm_

_PATIENCE = timedelta(seconds=20)
"""How long to wait for the other ranks. One may have saved before its signal arrived; then all
leave after the next save."""


def attach(module: ModuleType) -> None:
    """Let ``module.Accelerator`` save on request and resume, or leave after the script's saves."""
    _attach_saves(module)
    owners = [
        (getattr(module, kind, None), name)
        for kind, names in _PRIVATE_NAMES.items()
        for name in names
    ]
    if all(hasattr(kind, name) for kind, name in owners):  # other releases may lack some
        _attach_training(module)


def _attach_saves(module: ModuleType) -> None:
    save, backward = module.Accelerator.save_state, module.Accelerator.backward
    signal_flags: list[SignalFlag] = []
    saves, leaves = 0, False

    @functools.wraps(save)
    def save_state(self: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal saves, leaves
        training = getattr(self, _TRAINING, None)
        if training is not None and training.is_catching_up and not training.saves:
            return None  # an earlier run has done this
        if training is not None and not training.reason:
            return save(self, *args, **kwargs)
        saves += 1
        if not signal_flags and request.possible(self.num_processes):
            signal_flags.append(
                SignalFlag(signal.SIGUSR1)
            )  # only now is it known that the script saves
        result = save(self, *args, **kwargs)
        leaves = leaves or bool(signal_flags and signal_flags[0].now and _all_have(saves))
        return result

    @functools.wraps(backward)
    def backward_or_leave(self: Any, *args: Any, **kwargs: Any) -> Any:
        if leaves:
            leave(first=first())
        return backward(self, *args, **kwargs)

    module.Accelerator.save_state, module.Accelerator.backward = save_state, backward_or_leave


_PRIVATE_NAMES = {
    "Accelerator": (
        "prepare_data_loader", "backward", "end_training", "clip_grad_norm_", "clip_grad_value_",
        "log", "load_state", "unwrap_model",
    ),
    "AcceleratedOptimizer": ("step",),
    "AcceleratedScheduler": ("step",),
}  # fmt: skip

_TRAINING = "_hops_training"


def _attach_training(module: ModuleType) -> None:
    """Patch what a training needs to resume: its loader, losses, steps, schedule and end."""
    kind = module.Accelerator
    prepare, backward, ends = kind.prepare_data_loader, kind.backward, kind.end_training
    clip, clip_values, log = kind.clip_grad_norm_, kind.clip_grad_value_, kind.log
    step, schedule = module.AcceleratedOptimizer.step, module.AcceleratedScheduler.step

    @functools.wraps(prepare)
    def prepare_loader(self: Any, data_loader: Any, *args: Any, **kwargs: Any) -> Any:
        training = getattr(self, _TRAINING, None)
        if training is None:
            training = begin_training(self, data_loader)
            if training is not None:
                vars(self)[_TRAINING] = training
                _current[:] = [training]
                self._dataloaders.append(training.loader)
                return training.loader
        elif is_plain(data_loader) and shuffles(data_loader):
            training.keep_out("it has several loaders that shuffle")
        return prepare(self, data_loader, *args, **kwargs)

    @functools.wraps(backward)
    def backward_weighted(self: Any, loss: Any, **kwargs: Any) -> Any:
        training = getattr(self, _TRAINING, None)
        if training is None:
            return backward(self, loss, **kwargs)
        training.backwards += 1
        loss = loss * (training.weight * self.gradient_accumulation_steps)
        with training.adding_up():
            return backward(self, loss, **kwargs)

    @functools.wraps(clip)
    def clip_norm(self: Any, parameters: Any, max_norm: Any, *args: Any, **kwargs: Any) -> Any:
        if _is_partial(self):  # a scaler would unscale float16 gradients twice
            return clip_grad_norm_(parameters, float("inf"), *args, **kwargs)
        return clip(self, parameters, max_norm, *args, **kwargs)

    @functools.wraps(clip_values)
    def clipped_values(self: Any, *args: Any, **kwargs: Any) -> Any:
        return None if _is_partial(self) else clip_values(self, *args, **kwargs)

    @functools.wraps(log)
    def log_once(self: Any, *args: Any, **kwargs: Any) -> Any:
        training = getattr(self, _TRAINING, None)
        catches_up = training is not None and training.is_catching_up
        return None if catches_up else log(self, *args, **kwargs)

    @functools.wraps(step)
    def step_and_count(self: Any, *args: Any, **kwargs: Any) -> Any:
        for training in _current:
            training.steps += 1
        return step(self, *args, **kwargs)

    @functools.wraps(schedule)
    def schedule_steps(self: Any, *args: Any, **kwargs: Any) -> None:
        training = _current[0] if _current else None
        if training is None or self.split_batches or not self.step_with_optimizer:
            if training is None or not training.is_catching_up:
                schedule(self, *args, **kwargs)
            return
        if training.is_catching_up:
            return
        self.split_batches = True  # one step at a time
        try:
            for _ in range(training.schedule_steps()):
                schedule(self, *args, **kwargs)
        finally:
            self.split_batches = False

    @functools.wraps(ends)
    def end_training(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = ends(self, *args, **kwargs)
        training = getattr(self, _TRAINING, None)
        if training is not None:
            training.end()
        return result

    kind.prepare_data_loader, kind.backward, kind.end_training = (
        prepare_loader,
        backward_weighted,
        end_training,
    )
    kind.clip_grad_norm_, kind.clip_grad_value_, kind.log = clip_norm, clipped_values, log_once
    module.AcceleratedOptimizer.step, module.AcceleratedScheduler.step = (
        step_and_count,
        schedule_steps,
    )


def _is_partial(accelerator: Any) -> bool:
    """Whether gradients are those of only a part of a step."""
    return getattr(accelerator, _TRAINING, None) is not None and not accelerator.sync_gradients


_current: list[Training] = []
"""The process's training; there is at most one."""


def _all_have(saves: int) -> bool:
    """Whether all ranks get here after this save. This avoids collective calls, with which a script
    that saves only on its first rank, as is allowed, would hang.
    """
    if not several():
        return True
    store = dist.distributed_c10d._get_default_store()
    keys = [f"hops/{saves}/{rank}" for rank in range(dist.get_world_size())]
    store.set(keys[dist.get_rank()], "saved")
    verdict = b"leave"
    try:
        store.wait(keys, _PATIENCE)
    except RuntimeError:
        verdict = b"stay"
    # The first rank to know decides, since a later one may see what another has given up on.
    answer: bytes = store.compare_set(f"hops/{saves}", "", verdict.decode())
    return answer == b"leave"
