"""A checkpoint that is a folder, as frameworks write them: made in memory, or beside its place."""

from __future__ import annotations

import contextlib
import re
import shutil
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import torch.distributed as dist
from hops_profiler import environment
from hops_profiler.checkpoint.memory import Memory
from hops_profiler.checkpoint.target import PATIENCE_SECONDS, Target
from hops_profiler.checkpoint.wishes import broadcast, first, several


class Folder:
    """``final``, of a name that no other checkpoint has had, on a file system that all nodes share.

    Called on all ranks, as are its methods. ``size``: bytes that this rank has at most. All ranks
    write into ``made``, whose last part is that of ``final``. Memory is used where they are on one
    node: a folder with parts in the memory of several would be published by none of their epilogs.
    """

    def __init__(self, final: Path, size: int, *, memory: bool = True) -> None:
        self._target = Target(final)
        self._memory: Memory | None = None
        self._lock, self._placed = threading.Lock(), False
        base: Path | None = None
        if first() and memory:
            base = self._base(size)
        base = broadcast(base)
        self.in_memory = base is not None
        self._base_folder = base or final.with_name(f".{final.name}.partial")
        self.made = self._base_folder / final.name
        if first():
            shutil.rmtree(self._base_folder, ignore_errors=True)
            self._base_folder.mkdir(parents=True)
        if several():
            dist.barrier()

    def publish(self) -> None:
        """It is whole. Raises OSError, on all ranks."""
        if several():
            dist.barrier()
        message = ""
        if first():
            try:
                self.place()
            except OSError as failure:
                message = str(failure)
        message = broadcast(message)
        if message:
            raise OSError(message)

    def place(self) -> None:
        """The same, on the first rank alone, in any thread; more than once, too."""
        with self._lock:
            if not self._placed:
                self._place()
            self._placed = True

    def _place(self) -> None:
        if self._memory is not None and self.in_memory:
            self._memory.put_folder(self._target, self.made)
        else:
            self.made.rename(self._target.path)
        with contextlib.suppress(OSError):
            self._base_folder.rmdir()

    def discard(self) -> None:
        """It will not be whole."""
        if first():
            shutil.rmtree(self._base_folder, ignore_errors=True)

    def _base(self, size: int) -> Path | None:
        ranks = dist.get_world_size() if several() else 1
        folder = environment.state_dir()
        if not folder or (ranks > 1 and environment.local_ranks() != ranks):
            return None
        self._memory = Memory(Path(folder))
        return self._memory.base(self._target, size * ranks) if self._memory.is_served else None


def save(final: Path, size: int, write: Callable[[Path], object]) -> None:
    """Have ``write`` make the checkpoint ``final`` in the folder that it is given, on all ranks.

    In memory only if there is one rank: of several, one may find it full while the others wait for
    it. Raises what ``write`` raises, and OSError.
    """
    folder = Folder(final, size, memory=not several())
    if folder.in_memory:
        try:
            write(folder.made)
            folder.publish()
        except (OSError, RuntimeError):  # memory has filled up meanwhile
            folder.discard()
            folder = Folder(final, size, memory=False)
        else:
            return
    try:
        write(folder.made)
        folder.publish()
    except Exception:
        folder.discard()  # a part of a checkpoint may be as large as a full disk
        raise


def complete(folder: Path, last: str) -> dict[int, Path]:
    """The ``checkpoint-N`` of ``folder`` that have the file ``last``, by number, in order."""
    found = {}
    for path in folder.glob("checkpoint-*"):
        number = re.fullmatch(r"checkpoint-(0|[1-9]\d*)", path.name)
        if number and (path / last).exists():
            found[int(number[1])] = path
    return dict(sorted(found.items()))


def settle(folder: Path, patience: float = PATIENCE_SECONDS) -> None:
    """Wait for the ``checkpoint-N`` that are on their way to ``folder``, as `Target.settle` does.

    What is in this node's memory, and nobody is writing, is written now. If that fails it stays
    there, for the job's next end.
    """
    memory = Memory(Path(environment.state_dir() or "/nonexistent"))
    for coming in sorted(folder.glob(".checkpoint-*.coming")):
        target = Target(folder / coming.name.split(".")[1])
        try:
            for kept in memory.saves(target) if memory.is_served else ():
                kept.write(lambda: True, reuse=False)
        except OSError as failure:
            sys.stderr.write(f"hops: {target.path}: not written: {failure}\n")
            continue
        target.settle(patience)
