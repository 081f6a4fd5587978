"""Hugging Face Trainer: its own ``checkpoint-STEP``, saved by its own loop.

Looked at: transformers 5.23 (``trainer.py``, ``trainer_callback.py``,
``trainer_jit_checkpoint.py``).
"""

from __future__ import annotations

import functools
from pathlib import Path
from types import ModuleType
from typing import Any

import torch.distributed as dist
from hops_profiler import environment
from hops_profiler.checkpoint.folder import Folder
from hops_profiler.checkpoint.leaving import leave
from hops_profiler.checkpoint.size import size_of
from hops_profiler.checkpoint.wishes import first, several
from hops_profiler.frameworks import request
from hops_profiler.frameworks.marks import Marks

_LAST = "trainer_state.json"
"""The last file of a checkpoint that Trainer writes."""


def attach(module: ModuleType) -> None:
    """Have ``module.Trainer`` save on request, and resume."""
    train = module.Trainer.train
    callback = _callback(module.TrainerCallback)

    @functools.wraps(train)
    def resumed(self: Any, resume_from_checkpoint: Any = None, *args: Any, **kwargs: Any) -> Any:
        job = environment.job()
        trial = args[0] if args else kwargs.get("trial")  # one of a search's many trainings
        saves = trial is None and not self.args.save_only_model
        if job is None or not saves or not request.possible(self.args.world_size):
            return train(self, resume_from_checkpoint, *args, **kwargs)
        folder = Path(self.args.output_dir).resolve()
        marks = Marks(folder, request.training(job.id, folder), "checkpoint", _LAST)
        if job.run:
            resume_from_checkpoint = _found(marks) or resume_from_checkpoint
        with request.listening() as asked:
            own = callback(self, asked, marks)
            self.add_callback(own)
            try:
                return train(self, resume_from_checkpoint, *args, **kwargs)
            finally:
                self.remove_callback(own)

    module.Trainer.train = resumed


def _callback(base: Any) -> Any:
    class LeaveOnRequest(base):  # type: ignore[misc]
        """Has the loop save when hops asks, and ends the process once it has."""

        def __init__(self, trainer: Any, asked: request.Request, marks: Marks) -> None:
            self._trainer, self._asked, self._marks = trainer, asked, marks
            self._leaves = False

        def on_step_end(self, _args: Any, state: Any, control: Any, **_: Any) -> Any:
            if self._asked.reached():
                name = f"checkpoint-{state.global_step}"
                if first():
                    self._marks.add(name, scheduled=control.should_save)
                if not control.should_save and not self._is_looked_at():
                    self._save_to_memory(name)
                self._leaves = control.should_save = True
            return control

        def _is_looked_at(self) -> bool:
            """Whether others want to see what is saved, in its place: a logger that uploads it."""
            others = (one for one in self._trainer.callback_handler.callbacks if one is not self)
            looks = any(type(one).on_save is not base.on_save for one in others)
            return looks or self._trainer.args.push_to_hub

        def _save_to_memory(self, name: str) -> None:
            """Leaves, if there is room for it."""
            trainer = self._trainer
            optimizer = getattr(trainer.optimizer, "optimizer", trainer.optimizer)
            size = size_of([trainer.model.state_dict(), optimizer.state])
            folder = Folder(self._marks.folder / name, size)
            if not folder.in_memory:
                folder.discard()
                return
            trainer._get_output_dir = lambda trial: str(folder.made.parent)  # noqa: ARG005
            try:
                trainer._save_checkpoint(trainer.model, trial=None)
                folder.publish()
            except (OSError, RuntimeError):  # memory has filled up meanwhile
                if several():
                    raise
                folder.discard()
                return
            finally:
                del trainer._get_output_dir
            self._leave()

        def _leave(self) -> None:
            if several():
                dist.barrier()  # every rank writes its random numbers' state
            leave(first=first())

        def on_save(self, *_: Any, **__: Any) -> None:
            if self._leaves:
                self._leave()

    return LeaveOnRequest


def _found(marks: Marks) -> str | None:
    """The first rank looks: on a network's file system others may still see what was."""
    latest = None
    if first():
        marks.settle()
        latest = marks.latest()
    told = [str(latest) if latest else None]
    if several():
        dist.broadcast_object_list(told)
    if latest is not None:
        marks.clear(latest)
    return told[0]
