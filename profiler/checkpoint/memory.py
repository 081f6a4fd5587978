"""The node's memory: a folder of this job's, which prolog.sh makes and epilog.sh looks into.

A save is two files. ``TOKEN.state`` has its bytes, or is a folder as the checkpoint will be;
``TOKEN.to``, which comes last and so says that the other is complete, names the checkpoint. Whoever
writes it to the file system holds a lock on the latter. ``OWN.spare`` is a process's room for its
next save: pages that are there already are filled in half the time. ``mounts`` identifies the file
systems that the node sees: in a container the same path may lead elsewhere.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from hops_profiler.checkpoint.room import usable
from hops_profiler.checkpoint.target import Target


@dataclass(frozen=True)
class Memory:
    """``folder``: of one job on one node. ``own``: sets this process's files apart."""

    folder: Path
    own: str = field(default_factory=secrets.token_hex)

    @property
    def is_served(self) -> bool:
        """Whether the node's epilog will find what is left here, and where it is to go."""
        try:
            mounts = (self.folder / "mounts").read_text().strip()
            return mounts == os.readlink("/proc/self/ns/mnt")  # noqa: PTH115 - Python 3.8
        except OSError:
            return False

    @property
    def spare(self) -> Path:
        return self.folder / f"{self.own}.spare"

    def reserve(self, size: int) -> None:
        """Have ``size`` bytes ready for a save, if there is room for them."""
        with contextlib.suppress(OSError):
            if size <= usable(self.folder) + self._held():
                with self.spare.open("ab") as file:
                    os.posix_fallocate(file.fileno(), 0, size)

    def put(self, target: Target, size: int, fill: Callable[[IO[Any]], object]) -> bool:
        """Keep a save of about ``size`` bytes for ``target``; False: it could not be kept.

        Earlier saves for the same checkpoint are dropped once this one is complete. Where ``fill``
        fails, as torch.save does on a full device, the room is given back; the caller's own
        attempt to write says what was wrong if it was not the room.
        """
        try:
            if size > usable(self.folder) + self._held() or target.shares(self.folder):
                return False
            self.spare.touch(0o600)
            with self.spare.open("r+b") as file:
                fill(file)
                file.truncate()
            older = list(self.saves(target))
            token = target.announce()
            self.spare.rename(self.folder / f"{token}.state")
            self._direct(token, target)
            target.withdraw(token)
        except (OSError, RuntimeError):
            self.release()
            return False
        for save in older:
            save.drop()
        return True

    def base(self, target: Target, size: int) -> Path | None:
        """Where a checkpoint that is a folder, of about ``size`` bytes, is to be made; None: there
        is no room.
        """
        try:
            if size > usable(self.folder) or target.shares(self.folder) or target.path.exists():
                return None
        except OSError:
            return None
        return self.folder / f"{self.own}.made"

    def put_folder(self, target: Target, made: Path) -> None:
        """Keep ``made``, which is whole and in this folder, for ``target``. Raises OSError."""
        token = target.announce(folder=True)
        try:
            made.rename(self.folder / f"{token}.state")
            self._direct(token, target)
        except OSError:
            target.withdraw()  # no later run is to wait for it
            raise

    def _direct(self, token: str, target: Target) -> None:
        partial = self.folder / f"{token}.new"
        partial.write_text(f"{target.path}\n")
        partial.rename(self.folder / f"{token}.to")

    def release(self) -> None:
        """There will be no next save."""
        with contextlib.suppress(OSError):
            self.spare.unlink()

    def saves(self, target: Target) -> Iterator[Save]:
        """Complete saves for this checkpoint, the oldest first."""
        for path in sorted(self.folder.glob("*.to")):
            with contextlib.suppress(OSError):
                if path.read_text() == f"{target.path}\n":
                    yield Save(self, path.stem, target)

    def _held(self) -> int:
        """Bytes that the room for the next save has already."""
        try:
            return 512 * self.spare.stat().st_blocks
        except OSError:
            return 0


@dataclass(frozen=True)
class Save:
    """A complete save in ``memory``."""

    memory: Memory
    token: str
    target: Target

    @property
    def state(self) -> Path:
        return self.memory.folder / f"{self.token}.state"

    @property
    def is_wanted(self) -> bool:
        """Neither published yet nor given up."""
        return self.target.coming(self.token).exists()

    def write(self, go_on: Callable[[], bool], *, reuse: bool) -> None:
        """Publish it, unless another process is at it. ``reuse``: its file is the next save's.

        Raises OSError where the file system does not take it; then it stays in memory.
        """
        to = self.memory.folder / f"{self.token}.to"
        with contextlib.ExitStack() as stack:
            try:
                fcntl.flock(stack.enter_context(to.open()), fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (FileNotFoundError, BlockingIOError):
                return
            self.target.publish(self.token, self.state, go_on)
            if self.is_wanted:
                return
            with contextlib.suppress(OSError):  # the epilog frees what stays
                to.unlink()
                if reuse:
                    self.state.rename(self.memory.spare)
                elif self.state.is_dir():
                    shutil.rmtree(self.state)
                else:
                    self.state.unlink()

    def drop(self) -> None:
        for path in (self.memory.folder / f"{self.token}.to", self.state):
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
