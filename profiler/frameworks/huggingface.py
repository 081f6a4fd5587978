"""Hugging Face Trainer: saves its own checkpoint of a step in a folder of this training.

Written for transformers 5.24 (``trainer.py``, ``trainer_callback.py``, ``trainer_utils.py``).
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import os
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist
from hops_profiler import environment
from hops_profiler.checkpoint.folder import complete, save
from hops_profiler.checkpoint.leaving import leave
from hops_profiler.checkpoint.size import size_of
from hops_profiler.checkpoint.wishes import broadcast, first, several
from hops_profiler.data.source import Position
from hops_profiler.frameworks import request
from hops_profiler.frameworks.batch import Note
from hops_profiler.frameworks.huggingface_order import KeptSteps, split
from hops_profiler.frameworks.loader_order import replace_methods
from hops_profiler.frameworks.own import OwnCheckpoints
from hops_profiler.timing import loads

_LAST = "trainer_state.json"
"""The file of a checkpoint that Trainer writes last."""

_POSITION = "hops-data.pt"
"""File with the position in iterable data."""

_LOADS = frozenset(
    {
        "_load_from_checkpoint", "_load_optimizer_and_scheduler", "_load_rng_state", "_load_scaler",
        "_load_callback_state", "load_from_json", "deepspeed_load_checkpoint",
    }
)  # fmt: skip
"""Functions in which Trainer reads a checkpoint."""

_PRIVATE_NAMES = ("_maybe_log_save_evaluate", "_save_checkpoint", "_get_output_dir")
"""Private methods of Trainer that are used here."""


def attach_search(module: ModuleType) -> None:
    """Let ``module.get_last_checkpoint`` find the job's own checkpoint if there is no other.

    Scripts look before they train, and stop if a folder has files but no checkpoint.
    """
    search = vars(module)["get_last_checkpoint"]

    @functools.wraps(search)
    def find_last_checkpoint(folder: Any, *args: Any, **kwargs: Any) -> Any:
        path = search(folder, *args, **kwargs)
        base = Path(folder).resolve()
        if path is not None and not (Path(path) / _LAST).exists():
            path = _last_whole(base)  # the run was killed during a save
        if path is None and environment.restarts() and base not in _begun_folders:
            latest = _own_checkpoints(base).latest()
            path = str(latest) if latest else None
        return path

    vars(module)["get_last_checkpoint"] = find_last_checkpoint


def attach(module: ModuleType) -> None:
    """Let ``module.Trainer`` save on request, and resume."""
    train = module.Trainer.train

    @functools.wraps(train)
    def train_from_latest(
        self: Any, resume_from_checkpoint: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        trial = args[0] if args else kwargs.get("trial")  # one of many trainings of a search
        base = Path(self.args.output_dir or ".").resolve()
        turn, own_checkpoints = request.Turn(base), _own_checkpoints(base)
        # A script may handle the signal on its first rank only, so all ranks have to agree.
        able = request.can_agree() and _all(trial is None and _can_leave(self))
        _begun_folders.add(base)
        if (
            not able
            and request.can_agree()
            and first()
            and _is_in(own_checkpoints, resume_from_checkpoint)
        ):
            own_checkpoints.take()  # the script has found it; all ranks have looked
        if not able or not broadcast(
            turn.take() and own_checkpoints.is_usable() if first() else None
        ):
            return train(self, resume_from_checkpoint, *args, **kwargs)
        before = None
        if environment.restarts():
            before = _choose_checkpoint(
                own_checkpoints, resume_from_checkpoint, self.args.output_dir
            )
            if before and first():
                loads.tell("step", _steps(Path(before)), before)
        script = (
            None if before else _script_checkpoint(resume_from_checkpoint, self.args.output_dir)
        )
        steps = _kept_steps(self, own_checkpoints, Path(before) if before else script)
        with request.listen_for_signal() as stop_request:
            step = _Step(self, stop_request, own_checkpoints, turn, steps)
            note_save = functools.partial(
                _note_save, self, self._save_checkpoint, own_checkpoints, steps
            )
            hooks = replace_methods(self, _maybe_log_save_evaluate=step, _save_checkpoint=note_save)
            try:
                with steps.in_use(), hooks:
                    result = train(self, before or resume_from_checkpoint, *args, **kwargs)
            except Exception as failure:
                if before and request.failed_in(_LOADS, failure):
                    request.unusable(own_checkpoints, failure, first=first())
                raise
            if first():
                own_checkpoints.remove()
            return result

    module.Trainer.train = train_from_latest


def _own_checkpoints(base: Path) -> OwnCheckpoints:
    """Return the training's own checkpoints. Scripts stop if their folder has files but no
    checkpoint, so what is noted before the first checkpoint is next to the folder.
    """
    folder = request.folder_in(base)
    return OwnCheckpoints(folder, _LAST, base.with_name(f".{base.name}{folder.name}.json"))


def _last_whole(folder: Path) -> str | None:
    whole = complete(folder, _LAST)
    return str(whole[max(whole)]) if whole else None


_begun_folders: set[Path] = set()
"""The folders in which trainings of this process have begun."""


def _note_save(
    trainer: Any,
    save: Any,
    own_checkpoints: OwnCheckpoints,
    steps: KeptSteps,
    *args: Any,
    **kwargs: Any,
) -> None:
    """Note a save on the training's own schedule, from which the next run may resume."""
    trial = args[1] if len(args) > 1 else kwargs.get("trial")
    folder = Path(trainer._get_output_dir(trial)).resolve()
    checkpoint = folder / f"checkpoint-{trainer.state.global_step}"
    if first():  # before Trainer's last file, so that complete checkpoints have it
        _write_position(steps, checkpoint)
    save(*args, **kwargs)
    if first():
        steps.note().write(checkpoint)
        own_checkpoints.note_scheduled(checkpoint)


def _write_position(steps: KeptSteps, checkpoint: Path) -> None:
    """Write the position in iterable data, if Trainer has such data."""
    position = steps.position()
    if position is not None:
        with contextlib.suppress(OSError):
            checkpoint.mkdir(parents=True, exist_ok=True)
            torch.save(position.as_dict(), checkpoint / _POSITION)


def _read_position(checkpoint: Path | None) -> Position:
    """Read the position in iterable data; by default that of Trainer's count of steps."""
    steps = _steps(checkpoint)
    try:
        if checkpoint is None:
            return Position()
        return Position.from_dict(torch.load(checkpoint / _POSITION, weights_only=False))
    except Exception:  # a damaged file may raise anything
        return Position(0, steps, steps)


def _kept_steps(
    trainer: Any, own_checkpoints: OwnCheckpoints, checkpoint: Path | None
) -> KeptSteps:
    """Keep the samples per step of ``checkpoint``, since Trainer counts steps and assumes that past
    steps had the present size. If it has no note, keep those of the first run. Called on all ranks.
    """
    note = now = Note.now(split(trainer))
    if first():
        first_note = Note.from_dict(own_checkpoints.first_note(asdict(now)))
        note = Note.read(checkpoint) or first_note or now
    note, position = broadcast((note, _read_position(checkpoint) if first() else None))
    return KeptSteps(trainer, note, position)


def _can_leave(trainer: Any) -> bool:
    options = trainer.args
    differs = options.save_only_model or options.push_to_hub or options.save_on_each_node
    is_known = all(hasattr(trainer, name) for name in _PRIVATE_NAMES)
    is_joint = several() or options.world_size == 1
    return is_known and is_joint and not differs and request.possible(options.world_size)


class _Step:
    """Replaces what Trainer does after each step, and again after an epoch's last: log, evaluate
    and save what is due. After that the training can leave, since nothing remains to be done.
    """

    def __init__(
        self,
        trainer: Any,
        stop_request: request.LeaveRequest,
        own_checkpoints: OwnCheckpoints,
        turn: request.Turn,
        steps: KeptSteps,
    ) -> None:
        self._trainer, self._stop_request, self._own_checkpoints, self._turn = (
            trainer,
            stop_request,
            own_checkpoints,
            turn,
        )
        self._steps = steps
        self._do, self._save_checkpoint = trainer._maybe_log_save_evaluate, trainer._save_checkpoint
        self._last_step = -1

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        self._do(*args, **kwargs)
        state, control = self._trainer.state, self._trainer.control
        is_repeat, self._last_step = state.global_step == self._last_step, state.global_step
        ends = control.should_epoch_stop or state.epoch % 1 == 0
        if (
            self._stop_request.is_due()
            and (is_repeat or not ends)
            and not control.should_training_stop  # the training is at its end
        ):
            final = self._own_checkpoints.at(state.global_step)
            request.try_to_save(self._own_checkpoints, final, self._save, self._stop_request)
            leave(first=first())

    def _save(self, final: Path) -> None:
        trainer = self._trainer
        if broadcast(self._turn.is_shared() if first() else None):
            raise OSError("another training of the job runs in the same folder")
        if first():
            self._own_checkpoints.sign(final)
        optimizer = getattr(trainer.optimizer, "optimizer", trainer.optimizer)
        tensors = [list(trainer.model.parameters()), list(trainer.model.buffers()), optimizer.state]
        save(final, 0 if several() else size_of(tensors), self._write)

    def _write(self, folder: Path) -> None:
        """Let Trainer write the checkpoint, but not take it for its best one."""
        trainer = self._trainer
        best = trainer.state.best_model_checkpoint
        with replace_methods(trainer, _get_output_dir=lambda trial: str(folder.parent)):  # noqa: ARG005
            self._save_checkpoint(trainer.model, trial=None)
        if first():
            self._steps.note().write(folder)
            _write_position(self._steps, folder)
        if trainer.state.best_model_checkpoint != best:
            trainer.state.best_model_checkpoint = best
            if trainer.args.should_save:
                trainer.state.save_to_json(str(folder / _LAST))


def _choose_checkpoint(own_checkpoints: OwnCheckpoints, script: Any, folder: str) -> str | None:
    """Choose what to resume from: the job's own checkpoint, or a later one of the training's
    schedule; None for the script's choice, if that has more steps.

    Only the first rank looks, as others may see an outdated state of a network file system.
    """
    path = None
    if first():
        with contextlib.suppress(OSError):  # treat errors as if there were none
            ours = own_checkpoints.latest()
            ours = ours if own_checkpoints.take() else None
            candidates = [
                path for path in (ours, own_checkpoints.last_scheduled() if ours else None) if path
            ]
            latest = max(candidates, key=_steps, default=None)
            is_ours = (
                ours and latest and _steps(latest) >= _steps(_script_checkpoint(script, folder))
            )
            if ours and is_ours:
                path = str(latest)
                own_checkpoints.clear(ours)
    choice: str | None = broadcast(path)
    return choice


def _all(wish: bool) -> bool:
    """Whether all ranks have this wish."""
    wishes = [wish]
    if several():
        wishes *= dist.get_world_size()
        dist.all_gather_object(wishes, wish)
    return all(wishes)


def _script_checkpoint(script: Any, folder: str) -> Path | None:
    """Return the checkpoint that ``train(script)`` uses; True is the last in ``folder``."""
    if script is True:
        script = importlib.import_module("transformers.trainer_utils").get_last_checkpoint(folder)
    return Path(script) if isinstance(script, (str, os.PathLike)) else None


def _is_in(own_checkpoints: OwnCheckpoints, script: Any) -> bool:
    return (
        isinstance(script, (str, os.PathLike))
        and own_checkpoints.folder in Path(script).resolve().parents
    )


def _steps(checkpoint: Path | None) -> int:
    try:
        return int(json.loads((checkpoint / _LAST).read_text())["global_step"]) if checkpoint else 0
    except (OSError, ValueError, KeyError, TypeError):
        return 0
