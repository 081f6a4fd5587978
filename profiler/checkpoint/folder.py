"""A checkpoint that is a folder, as frameworks write it: made in memory, or next to its place."""

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
    """The checkpoint ``final``, whose name no other has had, on a file system that all nodes share.

    All ranks create one and call its methods. ``size``: this rank's bytes at most. All ranks write
    into ``path``, whose name is that of ``final``. It is in memory (``in_memory``) only if all
    ranks are on one node, since no epilog can publish a folder with parts in several nodes' memory.
    """

    def __init__(self, final: Path, size: int, *, memory: bool = True) -> None:
        self._target = Target(final)
        self._memory: Memory | None = None
        self._lock, self._is_placed = threading.Lock(), False
        base: Path | None = None
        if first() and memory:
            base = self._base(size)
        base = broadcast(base)
        self.in_memory = base is not None
        self._base_folder = base or final.with_name(f".{final.name}.partial")
        self.path = self._base_folder / final.name
        if first():
            shutil.rmtree(self._base_folder, ignore_errors=True)
            self._base_folder.mkdir(parents=True)
        if several():
            dist.barrier()

    def publish(self) -> None:
        """Publish the complete folder. Raises OSError on all ranks."""
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
        """Publish it; for the first rank only, in any thread. May be called more than once."""
        with self._lock:
            if not self._is_placed:
                self._place()
            self._is_placed = True

    def _place(self) -> None:
        if self._memory is not None and self.in_memory:
            self._memory.store_folder(self._target, self.path)
        else:
            self.path.rename(self._target.path)
        with contextlib.suppress(OSError):
            self._base_folder.rmdir()

    def discard(self) -> None:
        """Remove the incomplete folder."""
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
    """Let ``write`` make the checkpoint ``final`` in the folder passed to it, on all ranks.

    Memory is used only if there is one rank: if it filled up for one of several, the others would
    wait for that rank. Raises what ``write`` raises, and OSError.
    """
    folder = Folder(final, size, memory=not several())
    if folder.in_memory:
        try:
            write(folder.path)
            folder.publish()
        except (OSError, RuntimeError):  # memory has filled up since
            folder.discard()
            folder = Folder(final, size, memory=False)
        else:
            return
    try:
        write(folder.path)
        folder.publish()
    except Exception:
        folder.discard()  # an incomplete checkpoint may fill the disk
        raise


def complete(folder: Path, last: str) -> dict[int, Path]:
    """Find the folders ``checkpoint-N`` in ``folder`` that contain the file ``last``, by number."""
    folders = {}
    for path in folder.glob("checkpoint-*"):
        number = re.fullmatch(r"checkpoint-(0|[1-9]\d*)", path.name)
        if number and (path / last).exists():
            folders[int(number[1])] = path
    return dict(sorted(folders.items()))


def settle(folder: Path, patience: float = PATIENCE_SECONDS) -> None:
    """Wait for each ``checkpoint-N`` that is being written to ``folder``, as `Target.settle` does.

    Saves in this node's memory that no process is writing are written now. If that fails, they
    stay in memory until the job ends next time.
    """
    memory = Memory(Path(environment.state_dir() or "/nonexistent"))
    for incomplete in sorted(folder.glob(".checkpoint-*.coming")):
        target = Target(folder / incomplete.name.split(".")[1])
        try:
            for save_ in memory.saves(target) if memory.is_served else ():
                save_.write(lambda: True, reuse=False)
        except OSError as failure:
            sys.stderr.write(f"hops: {target.path}: not written: {failure}\n")
            continue
        target.settle(patience)
