"""The checkpoint of a training whose state is spread over its ranks, as with FSDP or DTensors.

torch.distributed.checkpoint writes it to ``FOLDER/checkpoint-N``, which any number of ranks can
load. Saves run asynchronously while training goes on; at hops' signal, they go to memory if all
ranks are on one node.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch.distributed as dist
from hops_profiler.checkpoint.folder import Folder, complete, settle
from hops_profiler.checkpoint.leaving import leave
from hops_profiler.checkpoint.size import size_of
from hops_profiler.checkpoint.target import PATIENCE_SECONDS
from hops_profiler.checkpoint.wishes import Agreement, SignalFlag, broadcast, first, several
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import async_save, save

_LAST = ".metadata"
"""The file of a checkpoint that torch.distributed.checkpoint writes last."""


class ShardedCheckpoint:
    """Checkpoints in ``folder``, on a file system that all nodes share, of what ``state`` returns.

    Every rank creates one after the process group. ``state`` returns a dictionary of tensors and
    plain values, such as that of `torch.distributed.checkpoint.state_dict.get_state_dict`.
    ``every``: seconds between saves; 0: save only at hops' signal, ``signal_number``. The last two
    checkpoints are kept.

    Raises:
        ValueError: if ``every`` is negative.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        state: Callable[[], dict[str, Any]],
        every: float = 0.0,
        signal_number: int = signal.SIGUSR1,
    ) -> None:
        if not every >= 0:
            raise ValueError(f"every={every!r}: give seconds, at least 0")
        self._folder, self._state, self._interval = Path(folder).resolve(), state, every
        self._signal, self._agreement = SignalFlag(signal_number), Agreement()
        # Saves run in parallel with the training, so they must not use the training's group.
        self._group = dist.new_group(backend="gloo") if several() else None
        self._saved_at = time.monotonic()
        self._save_task: tuple[Any, Folder] | None = None

    def load(self, patience: float = PATIENCE_SECONDS) -> dict[str, Any] | None:
        """Load the last complete state into what ``state`` returns; None if there is none.

        Waits for a save that is still being written from a node's memory, until it makes no
        progress for ``patience`` seconds.
        """
        latest: Path | None = None
        if first():
            settle(self._folder, patience)
            numbers = self._numbers()
            latest = self._path(numbers[-1]) if numbers else None
        latest = broadcast(latest)
        if latest is None:
            return None
        state = self._state()
        load(state, checkpoint_id=latest, process_group=self._group)
        return state

    def step(self) -> None:
        """Save if a save is due; call this after every iteration, on all ranks. After hops' signal,
        it saves and does not return: the process ends, and hops starts the job again.
        """
        due = self._interval > 0 and time.monotonic() - self._saved_at >= self._interval
        leaves, saves = self._agreement.reach(self._signal.now, due)
        if leaves:
            self._leave()
        elif saves:
            self.save()

    def save(self) -> None:
        """Save now, on all ranks. Waits for the previous save, and until the state is copied."""
        self.wait()
        self._saved_at = time.monotonic()
        state = self._state()
        folder = Folder(self._next(), 0, memory=False)
        save_task: Any = async_save(state, checkpoint_id=folder.path, process_group=self._group)
        self._save_task = save_task, folder
        if first():  # its part ends when all ranks have finished theirs
            save_task.add_done_callback(lambda _: None if save_task.exception() else folder.place())

    def wait(self) -> None:
        """Wait until the last save is published as a checkpoint. Raises what the save raised."""
        save_task, self._save_task = self._save_task, None
        if save_task is not None:
            save_task[0].result()
            save_task[1].publish()
            for number in self._numbers()[:-2] if first() else ():
                shutil.rmtree(self._path(number), ignore_errors=True)

    def _leave(self) -> None:
        self.wait()
        state = self._state()
        folder = Folder(self._next(), size_of(state))
        try:
            save(state, checkpoint_id=folder.path, process_group=self._group)
            folder.publish()
        except (CheckpointException, OSError):  # on all ranks
            if not folder.in_memory:
                raise
            folder.discard()  # memory has filled up since
            folder = Folder(self._next(), 0, memory=False)
            save(state, checkpoint_id=folder.path, process_group=self._group)
            folder.publish()
        leave(first=first())

    def _next(self) -> Path:
        path: Path = broadcast(self._path(max(self._numbers(), default=0) + 1) if first() else None)
        return path

    def _path(self, number: int) -> Path:
        return self._folder / f"checkpoint-{number}"

    def _numbers(self) -> list[int]:
        """Return the numbers of complete checkpoints, in order."""
        return list(complete(self._folder, _LAST))
