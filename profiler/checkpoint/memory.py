"""The job's folder in the node's memory, which prolog.sh creates and epilog.sh reads.

A save is two files. ``TOKEN.state`` has its bytes, or is a folder like the checkpoint; ``TOKEN.to``
names the checkpoint, and is written last, when the other is complete. A process that writes the
save to the file system locks ``TOKEN.to``. ``OWNER.spare`` is a process's space for its next save,
since existing pages are filled in half the time. ``mounts`` identifies the mount namespace of the
node: in a container the same path may lead elsewhere.
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

from hops_profiler.checkpoint.memory_room import usable
from hops_profiler.checkpoint.target import Target


@dataclass(frozen=True)
class Memory:
    """The ``folder`` of one job on one node. ``owner`` identifies this process's files."""

    folder: Path
    owner: str = field(default_factory=secrets.token_hex)

    @property
    def is_served(self) -> bool:
        """Whether the node's epilog can write saves left here to their checkpoints."""
        try:
            mounts = (self.folder / "mounts").read_text().strip()
            return mounts == os.readlink("/proc/self/ns/mnt")  # noqa: PTH115 - Python 3.8
        except OSError:
            return False

    @property
    def spare(self) -> Path:
        return self.folder / f"{self.owner}.spare"

    def reserve(self, size: int) -> None:
        """Allocate ``size`` bytes for a save if there is room."""
        with contextlib.suppress(OSError):
            if size <= usable(self.folder) + self._spare_bytes():
                with self.spare.open("ab") as file:
                    os.posix_fallocate(file.fileno(), 0, size)

    def store(self, target: Target, size: int, fill: Callable[[IO[Any]], object]) -> bool:
        """Store a save of about ``size`` bytes for ``target``; False if that fails.

        Drops earlier saves for the same checkpoint once this one is complete. If ``fill`` fails, as
        torch.save does on a full device, this frees the space; the caller then writes to the file
        system, where any other error shows.
        """
        try:
            if size > usable(self.folder) + self._spare_bytes() or target.shares(self.folder):
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
        """Return the path at which to make a checkpoint that is a folder of about ``size`` bytes;
        None if there is no room.
        """
        try:
            if size > usable(self.folder) or target.shares(self.folder) or target.path.exists():
                return None
        except OSError:
            return None
        return self.folder / f"{self.owner}.made"

    def store_folder(self, target: Target, folder: Path) -> None:
        """Store ``folder``, complete and in this memory, for ``target``. Raises OSError."""
        token = target.announce(folder=True)
        try:
            folder.rename(self.folder / f"{token}.state")
            self._direct(token, target)
        except OSError:
            target.withdraw()  # so that no later run waits for it
            raise

    def _direct(self, token: str, target: Target) -> None:
        partial = self.folder / f"{token}.new"
        partial.write_text(f"{target.path}\n")
        partial.rename(self.folder / f"{token}.to")

    def release(self) -> None:
        """Free the space for the next save."""
        with contextlib.suppress(OSError):
            self.spare.unlink()

    def saves(self, target: Target) -> Iterator[Save]:
        """Yield complete saves for this checkpoint, the oldest first."""
        for path in sorted(self.folder.glob("*.to")):
            with contextlib.suppress(OSError):
                if path.read_text() == f"{target.path}\n":
                    yield Save(self, path.stem, target)

    def _spare_bytes(self) -> int:
        """Bytes already allocated for the next save."""
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
        """Whether the save is neither published nor withdrawn."""
        return self.target.coming(self.token).exists()

    def write(self, go_on: Callable[[], bool], *, reuse: bool) -> None:
        """Publish the save, unless another process does. With ``reuse`` the next save may use its
        file. Raises OSError if it cannot be written; then it stays in memory.
        """
        direction = self.memory.folder / f"{self.token}.to"
        with contextlib.ExitStack() as stack:
            try:
                fcntl.flock(stack.enter_context(direction.open()), fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (FileNotFoundError, BlockingIOError):
                return
            self.target.publish(self.token, self.state, go_on)
            if self.is_wanted:
                return
            with contextlib.suppress(OSError):  # the epilog frees what remains
                direction.unlink()
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
