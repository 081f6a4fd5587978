"""Lightning: ``Trainer.save_checkpoint`` into a folder of this training's own.

Lightning's own handler of the signal saves wherever Python happens to be, only where srun starts
the ranks, and without agreement among them; where ours is there first, it stays out. Looked at:
lightning 2.6 (``signal_connector.py``, ``checkpoint_connector.py``, ``training_epoch_loop.py``,
``multiprocessing.py``, ``async_plugin.py``).
"""

from __future__ import annotations

import functools
from pathlib import Path
from types import ModuleType
from typing import Any

from hops_profiler import environment
from hops_profiler.checkpoint.folder import save
from hops_profiler.checkpoint.leaving import leave
from hops_profiler.checkpoint.size import size_of
from hops_profiler.checkpoint.wishes import several
from hops_profiler.frameworks import request
from hops_profiler.frameworks.own import Own

_STATE = "lightning.ckpt"


def attach(module: ModuleType) -> None:
    """Have ``module.Trainer`` save on request, and resume."""
    fit = module.Trainer.fit
    callback = _callback(module.Callback)

    @functools.wraps(fit)
    def resumed(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not _can_leave(self):
            return fit(self, *args, **kwargs)
        base = Path(self.default_root_dir).resolve()
        own = Own(request.folder_in(base), _STATE)
        latest = own.latest() if environment.restarts() else None
        if latest is not None:
            args, kwargs = _with_path(args, kwargs, str(latest / _STATE))
            if self.is_global_zero:
                own.clear(latest)
        with request.listening() as asked:
            ours = callback(asked, own)
            self.callbacks.append(ours)
            try:
                return fit(self, *args, **kwargs)
            finally:
                self.callbacks.remove(ours)
                request.ended(base)

    module.Trainer.fit = resumed


def _can_leave(trainer: Any) -> bool:
    """Each rank looks for the checkpoint by itself, before there is a process group: on several
    nodes they might see different ones.
    """
    launcher = type(trainer.strategy.launcher).__mro__
    spawns = any(one.__name__ == "_MultiProcessingLauncher" for one in launcher)  # not the ranks
    local = trainer.num_nodes == 1 and "://" not in str(trainer.default_root_dir)
    return local and not spawns and request.possible(trainer.world_size)


_POSITION = 4
"""Of ``ckpt_path`` among fit()'s arguments: model, training and validation data, data module."""


def _with_path(args: Any, kwargs: Any, path: str) -> tuple[Any, Any]:
    if len(args) > _POSITION:
        return (*args[:_POSITION], path, *args[_POSITION + 1 :]), kwargs
    return args, {**kwargs, "ckpt_path": path}


def _callback(base: type) -> Any:
    class LeaveOnRequest(base):  # type: ignore[misc]
        """Saves when hops asks, after a batch with which the optimizer has stepped; then leaves."""

        def __init__(self, asked: request.Request, own: Own) -> None:
            self._asked, self._own = asked, own
            self._step = 0

        def on_train_start(self, trainer: Any, *_: Any) -> None:
            self._step = trainer.global_step

        def on_train_batch_end(self, trainer: Any, *_: Any, **__: Any) -> None:
            stepped, self._step = trainer.global_step != self._step, trainer.global_step
            if stepped and self._asked.reached():
                request.tried(self._own.at(self._step), lambda final: _save(trainer, final))
                leave(first=trainer.is_global_zero)

    return LeaveOnRequest


def _save(trainer: Any, final: Path) -> None:
    def write(made: Path) -> None:
        trainer.save_checkpoint(made / _STATE)
        trainer.strategy.checkpoint_io.teardown()  # an asynchronous one's threads have written

    model, states = trainer.lightning_module, [one.state for one in trainer.optimizers]
    held = [list(model.parameters()), list(model.buffers()), states]
    save(final, 0 if several() else size_of(held), write)
