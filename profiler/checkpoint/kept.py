"""A training's checkpoint: what a script uses."""

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
from hops_profiler.checkpoint.wishes import Agreement, Asked, broadcast, first, several
from hops_profiler.timing.ending import flush

_RESERVE_AT = 3
"""The step at which memory is reserved: optimizers have their state by then."""


class Checkpoint:
    """A checkpoint at ``path``, on a file system that all nodes share, of what ``state`` returns.

    Every rank has one, made after the process group. The first rank's state is saved, in the
    format of :func:`torch.save`; ``state`` is called on all. ``every``: seconds between saves; 0:
    only when hops asks, by ``signal_number``.

    Raises:
        ValueError: a path with a line break, or a negative ``every``.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        state: Callable[[], Any],
        every: float = 0.0,
        signal_number: int = signal.SIGUSR1,
    ) -> None:
        if not every >= 0:
            raise ValueError(f"every={every!r}: give seconds, 0 or more")
        self._target = Target(Path(path).resolve())
        self._state, self._every = state, every
        folder = environment.state_dir()
        memory = Memory(Path(folder)) if folder else None
        self._memory = memory if memory and memory.is_served else None
        if self._memory:
            atexit.register(self._end, os.getpid())
        self._asked, self._agreement = Asked(signal_number), Agreement()
        self._steps, self._saved_at = 0, time.monotonic()
        self._writing: threading.Thread | None = None
        self._failure: OSError | None = None
        self._superseded = threading.Event()

    def load(self, patience: float = PATIENCE_SECONDS, **options: Any) -> Any:
        """The last complete state, by ``torch.load(..., **options)``; None if there is none.

        A save of the last run that is still on its way is read from this node's memory, or waited
        for as long as it does not stand still for ``patience`` seconds.
        """
        options = {"map_location": "cpu", "weights_only": True, **options}
        source: Path = broadcast(self._source(patience) if first() else None)
        for path in (source, self._target.path):  # from memory it may just have gone
            try:
                with path.open("rb") as file:
                    return torch.load(file, **options)
            except FileNotFoundError:
                continue
        return None

    def step(self) -> None:
        """Call it after every iteration, on all ranks: saves when it is time to, and when hops has
        asked. Then it does not return: the process ends, and hops starts the job again.
        """
        self._steps += 1
        if self._steps == _RESERVE_AT:
            self._reserve()
        due = self._every > 0 and time.monotonic() - self._saved_at >= self._every
        leaves, save = self._agreement.reached(self._asked.now, due)
        if leaves:
            self._leave()
        elif save:
            self.save()

    def save(self) -> None:
        """Save now, on all ranks. Writing to the file system goes on in the background, and a
        process does not end before it has: with code 1, if it could not be written.

        Raises:
            OSError: the file system does not take this save, or has not taken the one before.
        """
        state = self._state()
        self._saved_at = time.monotonic()
        if first() and self._put(state):
            failure, self._failure = self._failure, None
            self._begin_to_write(reuse=True)
            if failure is not None:
                raise failure

    def wait(self) -> None:
        """Until what has been saved is on the file system.

        Raises:
            OSError: the file system has not taken it; as much as is in memory stays there.
        """
        self._join()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _join(self) -> None:
        if self._writing is not None:
            self._writing.join()

    def _end(self, process: int) -> None:
        """At the process's end, but not of one that it has forked."""
        if os.getpid() != process or self._memory is None:
            return
        self._join()
        self._memory.release()
        if self._failure is not None:
            with suppress(AttributeError, OSError, ValueError):  # as in flush()
                sys.stderr.write(f"hops: {self._target.path}: not saved: {self._failure}\n")
            flush()
            os._exit(1)  # nothing else changes an exit code this late

    def _put(self, state: Any) -> bool:
        """True: it is in memory, and to be written; False: it has been written."""
        self._superseded.set()
        self._join()
        memory, size = self._memory, size_of(state)
        if memory is not None and memory.put(self._target, size, lambda f: _dump(state, f)):
            return True
        self._target.write(lambda file: torch.save(state, file))
        self._failure = None
        return False

    def _begin_to_write(self, *, reuse: bool) -> None:
        """``reuse``: nobody reads the save's file, so that the next one may have its room."""
        self._superseded = stop = threading.Event()
        self._writing = threading.Thread(target=self._write, args=(stop,), kwargs={"reuse": reuse})
        self._writing.start()

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
        """Where to load from; of ranks on other nodes none sees this one's memory."""
        if self._memory is not None and not (
            several() and environment.local_ranks() != dist.get_world_size()
        ):
            saves = [save for save in self._memory.saves(self._target) if save.is_wanted]
            if saves:
                self._begin_to_write(reuse=False)  # should the epilog have failed to
                return saves[-1].state
        self._target.settle(patience)
        return self._target.path

    def _leave(self) -> None:
        state = self._state()
        if first():
            self._put(state)
            self._failure = None  # of the one before; this one is the epilog's to write
        if several():
            dist.barrier()  # a launcher ends all ranks when the first of them ends
        leave(first=first())


def _dump(state: Any, file: IO[Any]) -> None:
    with _without_checksums():
        torch.save(state, file)


@contextmanager
def _without_checksums() -> Iterator[None]:
    """A third of the time of a save to memory; :func:`torch.load` does not look at them."""
    serialization: Any = torch.serialization
    if not hasattr(serialization, "set_crc32_options"):  # before PyTorch 2.6
        yield
        return
    before = serialization.get_crc32_options()
    serialization.set_crc32_options(False)
    try:
        yield
    finally:
        serialization.set_crc32_options(before)
