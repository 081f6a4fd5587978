"""Lightning: ``Trainer.save_checkpoint`` into ``hops-JOB-STEP`` in ``default_root_dir``.

Lightning's own handler of the signal saves wherever Python happens to be, only where srun starts
the ranks, and without agreement among them; where ours is there first, it stays out. Looked at:
lightning 2.6 (``signal_connector.py``, ``checkpoint_connector.py``, ``training_epoch_loop.py``).
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

_STATE = "lightning.ckpt"


def attach(module: ModuleType) -> None:
    """Have ``module.Trainer`` save on request, and resume."""
    fit = module.Trainer.fit
    callback = _callback(module.Callback)

    @functools.wraps(fit)
    def resumed(self: Any, *args: Any, **kwargs: Any) -> Any:
        job, folder = environment.job(), str(self.default_root_dir)
        spawns = getattr(self.strategy.launcher, "is_interactive_compatible", False)
        # Of ranks that fit() itself spawns this process is none.
        if job is None or spawns or "://" in folder or not request.possible(self.world_size):
            return fit(self, *args, **kwargs)
        training = request.training(job.id, Path(folder).resolve())
        marks = Marks(Path(folder).resolve(), training, f"hops-{training}", _STATE)
        if job.run:
            marks.settle()
        latest = marks.latest() if job.run else None
        if latest is not None:
            args, kwargs = _with_path(args, kwargs, str(latest / _STATE))
            if self.is_global_zero:
                marks.clear(latest)
        with request.listening() as asked:
            own = callback(asked, marks)
            self.callbacks.append(own)
            try:
                return fit(self, *args, **kwargs)
            finally:
                self.callbacks.remove(own)

    module.Trainer.fit = resumed


_POSITION = 4
"""Of ``ckpt_path`` among fit()'s arguments: model, training and validation data, data module."""


def _with_path(args: Any, kwargs: Any, path: str) -> tuple[Any, Any]:
    if len(args) > _POSITION:
        return (*args[:_POSITION], path, *args[_POSITION + 1 :]), kwargs
    return args, {**kwargs, "ckpt_path": path}


def _callback(base: type) -> Any:
    class LeaveOnRequest(base):  # type: ignore[misc]
        """Saves when hops asks, after a batch with which the optimizer has stepped; then leaves."""

        def __init__(self, asked: request.Request, marks: Marks) -> None:
            self._asked, self._marks = asked, marks
            self._step = 0

        def on_train_start(self, trainer: Any, *_: Any) -> None:
            self._step = trainer.global_step

        def on_train_batch_end(self, trainer: Any, *_: Any, **__: Any) -> None:
            stepped, self._step = trainer.global_step != self._step, trainer.global_step
            if stepped and self._asked.reached():
                self._save(trainer)
                leave(first=trainer.is_global_zero)

        def _save(self, trainer: Any) -> None:
            final = self._marks.folder / f"{self._marks.prefix}-{trainer.global_step}"
            if first():
                self._marks.add(final.name)
            states = [optimizer.state for optimizer in trainer.optimizers]
            size = size_of([*trainer.model.state_dict().values(), *states])
            folder = Folder(final, size)
            try:
                trainer.save_checkpoint(folder.made / _STATE)
            except (OSError, RuntimeError):  # memory has filled up meanwhile
                if several() or not folder.in_memory:
                    raise
                folder.discard()
                folder = Folder(final, size, memory=False)
                trainer.save_checkpoint(folder.made / _STATE)
            folder.publish()
            if several():
                dist.barrier()

    return LeaveOnRequest
