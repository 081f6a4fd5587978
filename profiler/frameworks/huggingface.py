"""Hugging Face Trainer: its own checkpoint of a step, in a folder of this training's own.

Looked at: transformers 5.23 (``trainer.py``, ``trainer_callback.py``, ``trainer_utils.py``).
"""

from __future__ import annotations

import functools
import importlib
import json
import os
from pathlib import Path
from types import ModuleType
from typing import Any

import torch.distributed as dist
from hops_profiler import environment
from hops_profiler.checkpoint.folder import save
from hops_profiler.checkpoint.leaving import leave
from hops_profiler.checkpoint.size import size_of
from hops_profiler.checkpoint.wishes import first, several
from hops_profiler.frameworks import request
from hops_profiler.frameworks.own import Own

_LAST = "trainer_state.json"
"""The last file of a checkpoint that Trainer writes."""

_USED = ("_maybe_log_save_evaluate", "_save_checkpoint", "_get_output_dir")
"""What is used of Trainer that it does not promise."""


def attach_search(module: ModuleType) -> None:
    """Have ``module.get_last_checkpoint`` find the job's own where there is no other.

    Scripts look before they train, and stop at a folder that has files but no checkpoint.
    """
    search = vars(module)["get_last_checkpoint"]

    @functools.wraps(search)
    def found(folder: Any, *args: Any, **kwargs: Any) -> Any:
        path = search(folder, *args, **kwargs)
        if path is None and environment.restarts():
            own = Own(request.folder_in(Path(folder).resolve()), _LAST).latest()
            path = str(own) if own else None
        return path

    vars(module)["get_last_checkpoint"] = found


def attach(module: ModuleType) -> None:
    """Have ``module.Trainer`` save on request, and resume."""
    train = module.Trainer.train

    @functools.wraps(train)
    def resumed(self: Any, resume_from_checkpoint: Any = None, *args: Any, **kwargs: Any) -> Any:
        trial = args[0] if args else kwargs.get("trial")  # one of a search's many trainings
        if trial is not None or not _can_leave(self):
            return train(self, resume_from_checkpoint, *args, **kwargs)
        base = Path(self.args.output_dir).resolve()
        own = Own(request.folder_in(base), _LAST)
        if environment.restarts():
            resume_from_checkpoint = _chosen(own, resume_from_checkpoint, self.args.output_dir)
        with request.listening() as asked:
            self._maybe_log_save_evaluate = _Step(self, asked, own)
            try:
                return train(self, resume_from_checkpoint, *args, **kwargs)
            finally:
                del self._maybe_log_save_evaluate
                request.ended(base)

    module.Trainer.train = resumed


def _can_leave(trainer: Any) -> bool:
    options = trainer.args
    differs = options.save_only_model or options.push_to_hub or options.save_on_each_node
    known = all(hasattr(trainer, name) for name in _USED)
    return known and not differs and request.possible(options.world_size)


class _Step:
    """What Trainer does after each step, and again after an epoch's last: it logs, evaluates and
    saves what is due. After that the training can leave, with nothing still to be done.
    """

    def __init__(self, trainer: Any, asked: request.Request, own: Own) -> None:
        self._trainer, self._asked, self._own = trainer, asked, own
        self._do = trainer._maybe_log_save_evaluate
        self._seen, self._has_saved = -1, False

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        self._do(*args, **kwargs)
        state, stops = self._trainer.state, self._trainer.control.should_training_stop
        again, self._seen = state.global_step == self._seen, state.global_step
        ends = stops or self._trainer.control.should_epoch_stop or state.epoch % 1 == 0
        if self._asked.reached() and (again or not ends) and not self._has_saved:
            self._has_saved = True
            request.tried(self._own.at(state.global_step), self._save)
            if not stops:  # else the training is at its end
                leave(first=first())

    def _save(self, final: Path) -> None:
        trainer = self._trainer
        optimizer = getattr(trainer.optimizer, "optimizer", trainer.optimizer)
        held = [list(trainer.model.parameters()), list(trainer.model.buffers()), optimizer.state]
        save(final, 0 if several() else size_of(held), self._write)

    def _write(self, made: Path) -> None:
        trainer = self._trainer
        trainer._get_output_dir = lambda trial: str(made.parent)  # noqa: ARG005
        try:
            trainer._save_checkpoint(trainer.model, trial=None)
        finally:
            del trainer._get_output_dir


def _chosen(own: Own, script: Any, folder: str) -> Any:
    """What to go on from: the job's own checkpoint, or the script's choice if that has more steps.

    The first rank looks: on a network's file system others may still see what was.
    """
    told: list[str | None] = [None]
    if first():
        latest = own.latest()
        if latest is not None and _steps(latest) >= _steps(_named(script, folder)):
            told = [str(latest)]
            own.clear(latest)
    if several():
        dist.broadcast_object_list(told)
    return told[0] or script


def _named(script: Any, folder: str) -> Path | None:
    """The checkpoint that ``train(script)`` takes; True is the last in ``folder``."""
    if script is True:
        script = importlib.import_module("transformers.trainer_utils").get_last_checkpoint(folder)
    return Path(script) if isinstance(script, (str, os.PathLike)) else None


def _steps(checkpoint: Path | None) -> int:
    try:
        return int(json.loads((checkpoint / _LAST).read_text())["global_step"]) if checkpoint else 0
    except (OSError, ValueError, KeyError, TypeError):
        return 0
