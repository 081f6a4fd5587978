"""A training's checkpoint in one file, for use by scripts."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import torch
import torch.distributed as dist
from hops_profiler import environment
from hops_profiler.checkpoint.leaving import leave
from hops_profiler.checkpoint.memory import Memory
from hops_profiler.checkpoint.size import size_of
from hops_profiler.checkpoint.target import PATIENCE_SECONDS, Target
from hops_profiler.checkpoint.wishes import Agreement, SignalFlag, broadcast, first, several
from hops_profiler.timing.ending import flush

_RESERVE_AT = 3
"""Step at which memory is reserved, since optimizers have their state by then."""


class Checkpoint:
    """A checkpoint at ``path``, on a file system that all nodes share, of what ``state`` returns.

    Every rank creates one after the process group. It saves the first rank's state, in the format
    of :func:`torch.save`; ``state`` is called on all ranks. ``every``: seconds between saves; 0:
    save only at hops' signal, ``signal_number``.

    Raises:
        ValueError: if the path has a line break, or ``every`` is negative.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        state: Callable[[], Any],
        every: float = 0.0,
        signal_number: int = signal.SIGUSR1,
    ) -> None:
        if not every >= 0:
            raise ValueError(f"every={every!r}: give seconds, at least 0")
        self._target = Target(Path(path).resolve())
        self._state, self._interval = state, every
        folder = environment.state_dir()
        memory = Memory(Path(folder)) if folder else None
        self._memory = memory if memory and memory.is_served else None
        if self._memory:
            atexit.register(self._end, os.getpid())
        self._signal, self._agreement = SignalFlag(signal_number), Agreement()
        self._steps, self._saved_at = 0, time.monotonic()
        self._save_thread: threading.Thread | None = None
        self._failure: OSError | None = None
        self._stop_writing = threading.Event()

    def load(self, patience: float = PATIENCE_SECONDS, **options: Any) -> Any:
        """Load the last complete state by ``torch.load(..., **options)``; None if there is none.

        A save of the last run that is still being written is read from this node's memory, or
        waited for until it makes no progress for ``patience`` seconds.
        """
        options = {"map_location": "cpu", "weights_only": True, **options}
        source: Path = broadcast(self._source(patience) if first() else None)
        for path in (source, self._target.path):  # a file in memory may just have been moved
            try:
                with path.open("rb") as file:
                    return torch.load(file, **options)
            except FileNotFoundError:
                continue
        return None

    def step(self) -> None:
        """Save if a save is due; call this after every iteration, on all ranks. After hops' signal,
        it saves and does not return: the process ends, and hops starts the job again.
        """
        self._steps += 1
        if self._steps == _RESERVE_AT:
            self._reserve()
        due = self._interval > 0 and time.monotonic() - self._saved_at >= self._interval
        leaves, save = self._agreement.reach(self._signal.now, due)
        if leaves:
            self._leave()
        elif save:
            self.save()

    def save(self) -> None:
        """Save now, on all ranks. Writing to the file system continues in the background; the
        process ends only when it is done, with code 1 if it failed.

        Raises:
            OSError: if this save, or the previous one, cannot be written.
        """
        state = self._state()
        self._saved_at = time.monotonic()
        if first() and self._store(state):
            failure, self._failure = self._failure, None
            self._begin_to_write(reuse=True)
            if failure is not None:
                raise failure

    def wait(self) -> None:
        """Wait until the last save is on the file system.

        Raises:
            OSError: if it could not be written; if it is in memory, it stays there.
        """
        self._join()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _join(self) -> None:
        if self._save_thread is not None:
            self._save_thread.join()

    def _end(self, process: int) -> None:
        """Finish writing when this process ends, but not when one of its forks does."""
        if os.getpid() != process or self._memory is None:
            return
        self._join()
        self._memory.release()
        if self._failure is not None:
            with suppress(AttributeError, OSError, ValueError):  # as in flush()
                sys.stderr.write(f"hops: {self._target.path}: not saved: {self._failure}\n")
            flush()
            os._exit(1)  # nothing else changes an exit code this late

    def _store(self, state: Any) -> bool:
        """Store ``state``: True if in memory, so that it has to be written; False if in a file."""
        self._stop_writing.set()
        self._join()
        memory, size = self._memory, size_of(state)
        if memory is not None and memory.store(self._target, size, lambda f: _dump(state, f)):
            return True
        self._target.write(lambda file: torch.save(state, file))
        self._failure = None
        return False

    def _begin_to_write(self, *, reuse: bool) -> None:
        """Start to write. With ``reuse``, nobody reads the file in memory, so it may be reused."""
        self._stop_writing = stop = threading.Event()
        self._save_thread = threading.Thread(
            target=self._write, args=(stop,), kwargs={"reuse": reuse}
        )
        self._save_thread.start()

    def _write(self, stop: threading.Event, *, reuse: bool) -> None:
        for save in self._memory.saves(self._target) if self._memory else ():
            try:
                save.write(lambda: not stop.is_set(), reuse=reuse)
                self._failure = None
            except OSError as failure:
                self._failure = failure

    def _reserve(self) -> None:
        size = size_of(self._state())
        if first() and self._memory is not None:
            threading.Thread(target=self._memory.reserve, args=(size,), daemon=True).start()

    def _source(self, patience: float) -> Path:
        """Return the file to load; ranks on other nodes do not see this node's memory."""
        if self._memory is not None and not (
            several() and environment.local_ranks() != dist.get_world_size()
        ):
            saves = [save for save in self._memory.saves(self._target) if save.is_wanted]
            if saves:
                self._begin_to_write(reuse=False)  # the epilog may have failed to write it
                return saves[-1].state
        self._target.settle(patience)
        return self._target.path

    def _leave(self) -> None:
        state = self._state()
        if first():
            self._store(state)
            self._failure = None  # a failure of the previous save; the epilog writes this one
        if several():
            dist.barrier()  # a launcher ends all ranks when the first of them ends
        leave(first=first())


def _dump(state: Any, file: IO[Any]) -> None:
    with _without_checksums():
        torch.save(state, file)


@contextmanager
def _without_checksums() -> Iterator[None]:
    """Skip checksums: they take a third of a save to memory, and `torch.load` ignores them."""
    serialization: Any = torch.serialization
    if not hasattr(serialization, "set_crc32_options"):  # before PyTorch 2.6
        yield
        return
    setting = serialization.get_crc32_options()
    serialization.set_crc32_options(False)
    try:
        yield
    finally:
        serialization.set_crc32_options(setting)
