"""The checkpoint on the file system, which several runs of a job see: whole, or not at all.

A save that is still to be written has an empty file beside the checkpoint, ``.NAME.TOKEN.coming``.
Its bytes are written there, and one rename publishes them: a run that gives up waiting removes
that file, and with it the permission to publish. A token begins with the save's number; no save
is published after a later one.

A checkpoint may be a folder, of a name that no other save has had: then what is coming is one, too,
and save.sh fills it, or the next run if it is on the same node.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

PATIENCE_SECONDS = 180.0
"""How long a save that is coming may stand still before the last complete one is taken. A batch
job's end takes up to Slurm's KillWait, 30 s, before its epilog writes; a busy file system may need
a minute for the last bytes. Only where a node has died does a run wait so long."""

_LOOK_SECONDS = 0.05


@dataclass(frozen=True)
class Target:
    """The checkpoint ``path``. Raises ValueError if its name cannot be used."""

    path: Path

    def __post_init__(self) -> None:
        if "\n" in str(self.path) or not self.path.name:
            raise ValueError(f"{str(self.path)!r}: give a file's path without line breaks")

    def coming(self, token: str) -> Path:
        """The file of the save ``token`` while it is being written."""
        return self.path.with_name(f".{self.path.name}.{token}.coming")

    def expected(self) -> list[Path]:
        """The files of all saves that are coming, the oldest first."""
        shape = re.compile(re.escape(f".{self.path.name}.") + r"\d{8}-\w+\.coming")
        try:
            names = [path.name for path in self.path.parent.iterdir()]
        except FileNotFoundError:
            return []
        return [self.path.with_name(name) for name in sorted(filter(shape.fullmatch, names))]

    def shares(self, folder: Path) -> bool:
        """Whether it is on the file system of ``folder``; save.sh writes none there."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        return self.path.parent.stat().st_dev == folder.stat().st_dev

    def announce(self, *, folder: bool = False) -> str:
        """Say that a save is coming; returns its token, by which it is known."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        latest = [int(path.name.split(".")[-2].partition("-")[0]) for path in self.expected()]
        token = f"{max(latest, default=0) + 1:08d}-{secrets.token_hex(4)}"
        coming = self.coming(token)
        coming.mkdir() if folder else coming.touch()
        return token

    def withdraw(self, token: str = "") -> None:
        """What is coming, up to the save before ``token``, is not to be published any more."""
        for path in self.expected():
            if not token or path < self.coming(token):
                withdraw(path)

    def settle(self, patience: float = PATIENCE_SECONDS) -> None:
        """Wait until nothing is coming; what stands still for ``patience`` seconds is given up."""
        for path in self.expected():
            seen, since = _look(path), time.monotonic()
            while seen is not None:
                time.sleep(_LOOK_SECONDS)
                now = _look(path)
                if now != seen:
                    seen, since = now, time.monotonic()
                elif time.monotonic() - since > patience:
                    withdraw(path)

    def write(self, fill: Callable[[IO[Any]], None]) -> None:
        """Write the checkpoint now, by ``fill``; readers see the old or the new one."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        partial = self.path.with_name(f".{self.path.name}.partial")
        with partial.open("wb") as file:
            fill(file)
            file.flush()
            os.fsync(file.fileno())
        self.withdraw()
        partial.replace(self.path)
        self._sync()

    def publish(self, token: str, source: Path, go_on: Callable[[], bool]) -> bool:
        """Write ``source`` as the save that was announced; False if it is not wanted any more.

        ``go_on`` is asked between parts. Raises OSError as the file system does.
        """
        coming = self.coming(token)
        if source.is_dir():
            return self._publish_folder(coming, source)
        try:
            with source.open("rb", buffering=0) as from_, coming.open("r+b", buffering=0) as to:
                while part := from_.read(_PART):
                    if not go_on():
                        return False
                    rest = memoryview(part)
                    while rest:
                        rest = rest[to.write(rest) :]
                os.fsync(to.fileno())
            self.withdraw(token)
            coming.rename(self.path)
        except FileNotFoundError:
            return False
        self._sync()
        return True

    def _publish_folder(self, coming: Path, source: Path) -> bool:
        if not coming.exists():
            return False
        shutil.copytree(source, coming, dirs_exist_ok=True)
        for path in [coming, *coming.rglob("*")]:
            _sync(path)
        coming.rename(self.path)
        _sync(self.path.parent)
        return True

    def _sync(self) -> None:
        """Have the name on the disk, too."""
        _sync(self.path.parent)


_PART = 8 << 20


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def withdraw(coming: Path) -> None:
    """Whoever writes it can no longer publish it."""
    with contextlib.suppress(FileNotFoundError):
        if coming.is_dir():
            late = coming.with_suffix(".late")
            coming.rename(late)  # at once: a writer finds nothing there
            shutil.rmtree(late, ignore_errors=True)
        else:
            coming.unlink()


def _look(path: Path) -> tuple[int, int] | None:
    """Size and time, of a folder of all in it; None: it is not there. Opened, as NFS asks its
    server then.
    """
    try:
        if path.is_dir():
            found = [seen for file in path.rglob("*") if (seen := _look(file))]
            return sum(size for size, _ in found), max((time for _, time in found), default=0)
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns
