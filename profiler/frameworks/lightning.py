"""Lightning: calls ``Trainer.save_checkpoint`` with a folder of this training.

Lightning's own signal handler saves wherever Python happens to be, only if srun starts the ranks,
and without agreement among them; it is not installed if ours is there first. Written for
lightning 2.6 (``signal_connector.py``, ``checkpoint_connector.py``, ``training_epoch_loop.py``,
``multiprocessing.py``, ``async_plugin.py``).
"""

from __future__ import annotations

import functools
import os
import sys
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

from hops_profiler import environment
from hops_profiler.checkpoint.folder import save
from hops_profiler.checkpoint.leaving import leave
from hops_profiler.checkpoint.size import size_of
from hops_profiler.checkpoint.wishes import several
from hops_profiler.frameworks import request
from hops_profiler.frameworks.batch import Note
from hops_profiler.frameworks.lightning_order import KeptOrder
from hops_profiler.frameworks.own import OwnCheckpoints

_STATE = "lightning.ckpt"

_NOTE = "hops"
"""The key of a checkpoint's `Note`."""

_DATA = "hops_data"
"""The key of the position in iterable data."""

_LOADS = frozenset({"resume_start", "_restore_modules_and_callbacks", "restore_training_state"})
"""Functions in which Lightning reads a checkpoint."""


def attach(module: ModuleType) -> None:
    """Let ``module.Trainer`` save on request, and resume."""
    fit = module.Trainer.fit
    callback = _callback(module.Callback)

    @functools.wraps(fit)
    def fit_from_latest(self: Any, *args: Any, **kwargs: Any) -> Any:
        base = Path(self.default_root_dir).resolve()
        if base in _begun_folders or not _can_leave(self):
            if not _searches(self):
                _begun_folders.add(base)
            return fit(self, *args, **kwargs)
        _begun_folders.add(base)
        own_checkpoints, turn = OwnCheckpoints(request.folder_in(base), _STATE), request.Turn(base)
        latest = (
            own_checkpoints.latest() if environment.restarts() and not turn.is_taken() else None
        )
        if latest is not None:
            script_checkpoint = _script_checkpoint(
                self, args[_POSITION] if len(args) > _POSITION else kwargs.get("ckpt_path")
            )
            if script_checkpoint is not None and _time(script_checkpoint) > _time(latest / _STATE):
                latest = None
        if latest is not None:
            args, kwargs = _with_path(args, kwargs, str(latest / _STATE))
        free = request.is_free()
        with request.listen_for_signal() if free else nullcontext() as stop_request:
            order = KeptOrder(self, own_checkpoints)
            ours = callback(stop_request, own_checkpoints, turn, latest, order)
            self.callbacks.append(ours)
            try:
                with order:
                    result = fit(self, *args, **kwargs)
            except Exception as failure:
                if latest is not None and request.failed_in(_LOADS, failure):
                    request.unusable(own_checkpoints, failure, first=self.is_global_zero)
                raise
            finally:
                self.callbacks.remove(ours)
            if ours.leads and self.is_global_zero and self.state.finished:
                own_checkpoints.remove()
            return result

    module.Trainer.fit = fit_from_latest


_begun_folders: set[Path] = set()
"""The folders in which trainings of this process have begun."""


def _can_leave(trainer: Any) -> bool:
    """Whether this training can leave. Each rank looks for the checkpoint by itself before there is
    a process group, and on several nodes they might see different ones.
    """
    launcher = type(trainer.strategy.launcher).__mro__
    spawns = any(
        launcher_class.__name__ == "_MultiProcessingLauncher" for launcher_class in launcher
    )  # trains in child processes, not here
    local = trainer.num_nodes == 1 and "://" not in str(trainer.default_root_dir)
    same_words = (
        trainer.world_size == 1 or "hydra" not in sys.modules
    )  # else each rank gets its own words
    fits = local and not spawns and same_words and not _searches(trainer)
    return fits and request.is_alone(trainer.world_size)


def _searches(trainer: Any) -> bool:
    """Whether this only searches for a learning rate or a batch size before the real training."""
    return any(getattr(callback, "_early_exit", False) for callback in trainer.callbacks)


_POSITION = 4
"""Index of ``ckpt_path`` in fit()'s arguments, after model, loaders and data module."""


def _with_path(args: Any, kwargs: Any, path: str) -> tuple[Any, Any]:
    if len(args) > _POSITION:
        return (*args[:_POSITION], path, *args[_POSITION + 1 :]), kwargs
    return args, {**kwargs, "ckpt_path": path}


def _script_checkpoint(trainer: Any, script: Any) -> Path | None:
    """Return the checkpoint that ``fit(ckpt_path=script)`` uses, on a local file system."""
    if script == "last":
        finds = [
            getattr(callback, "_find_last_checkpoints", None) for callback in trainer.callbacks
        ]
        checkpoints = [Path(path) for find in finds if find for path in find(trainer)]
        return max(checkpoints, key=_time, default=None)
    return Path(script) if isinstance(script, (str, os.PathLike)) else None


def _time(path: Path) -> float:
    """Return when the file was written; 0 if it does not exist."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _callback(base: type) -> Any:
    class LeaveOnRequest(base):  # type: ignore[misc]
        """Saves and leaves when hops asks, after a batch at which the optimizer has stepped."""

        def __init__(
            self,
            stop_request: request.LeaveRequest | None,
            own_checkpoints: OwnCheckpoints,
            turn: request.Turn,
            latest: Path | None,
            order: KeptOrder,
        ) -> None:
            self._stop_request, self._own_checkpoints, self._turn, self._latest = (
                stop_request,
                own_checkpoints,
                turn,
                latest,
            )
            self._order = order
            self._step = 0
            self.leads = self._has_waited = False

        def on_fit_start(self, trainer: Any, *_: Any) -> None:
            """Let ranks agree; all have looked for the checkpoint by now. A script may handle the
            signal on its first rank only, so all ranks have to agree.
            """
            first = trainer.is_global_zero
            able = trainer.strategy.reduce_boolean_decision(self._stop_request is not None)
            leads = able and first and self._turn.take() and self._own_checkpoints.is_usable()
            self.leads = trainer.strategy.broadcast(leads)
            if self._stop_request is not None and not self.leads:
                self._stop_request.decline()
            if first and self._latest is not None and self._own_checkpoints.take():
                self._own_checkpoints.clear(self._latest)

        def on_load_checkpoint(self, _trainer: Any, _module: Any, checkpoint: Any) -> None:
            self._order.resumed_note = Note.from_dict(checkpoint.get(_NOTE))
            self._order.resumed_data = checkpoint.get(_DATA)

        def on_save_checkpoint(self, _trainer: Any, _module: Any, checkpoint: Any) -> None:
            """Add our notes to every checkpoint, including those of Lightning's own schedule."""
            if self._order.note is not None:
                checkpoint[_NOTE] = asdict(self._order.note)
            if (position := self._order.position()) is not None:
                checkpoint[_DATA] = position.as_dict()

        def on_train_start(self, trainer: Any, *_: Any) -> None:
            self._step = trainer.global_step

        def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
            """Count the epoch as begun. Lightning does not if it resumed from a checkpoint of the
            previous epoch's last batch; then a checkpoint of this epoch would begin it anew.
            """
            if self._order.note is not None:
                progress = trainer.fit_loop.epoch_progress
                for count in (progress.current, progress.total):
                    count.ready = count.started = count.processed + 1

        def on_train_batch_end(self, trainer: Any, *_: Any, **__: Any) -> None:
            has_step, self._step = trainer.global_step != self._step, trainer.global_step
            able = has_step and self.leads and not trainer.is_last_batch
            # After an epoch's last batch, Lightning would begin that epoch again.
            waits = able and not self._has_waited and self._order.validates()
            self._has_waited = waits
            if (
                able
                and not waits
                and self._stop_request is not None
                and self._stop_request.is_due()
            ):
                final = self._own_checkpoints.at(self._step)
                request.try_to_save(
                    self._own_checkpoints,
                    final,
                    lambda at: self._save(trainer, at),
                    self._stop_request,
                )
                leave(first=trainer.is_global_zero)

        def _save(self, trainer: Any, final: Path) -> None:
            first = trainer.is_global_zero
            if trainer.strategy.broadcast(first and self._turn.is_shared()):
                raise OSError("another training of the job runs in the same folder")
            if first:
                self._own_checkpoints.sign(final)
            _save(trainer, final)

    return LeaveOnRequest


def _save(trainer: Any, final: Path) -> None:
    def write(folder: Path) -> None:
        trainer.save_checkpoint(folder / _STATE)
        trainer.strategy.checkpoint_io.teardown()  # waits for an asynchronous one's threads

    model, states = trainer.lightning_module, [optimizer.state for optimizer in trainer.optimizers]
    tensors = [list(model.parameters()), list(model.buffers()), states]
    save(final, 0 if several() else size_of(tensors), write)
