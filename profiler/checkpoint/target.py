"""The checkpoint on the file system, which several runs of a job see either complete or not at all.

An announced save has an initially empty file next to the checkpoint, ``.NAME.TOKEN.coming``. Its
bytes are written there, and one rename publishes them; a run that stops waiting removes that file,
and with it the permission to publish. A token begins with the save's number; no save is published
after a later one.

A checkpoint may be a folder, with a name that no other save has had. Then the ``.coming`` is a
folder, too, which save.sh fills, or the next run if it is on the same node.
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
"""How long a run waits for an announced save without progress before it loads the last complete
one. It may take Slurm's KillWait, 30 s, until a batch job has ended and its epilog writes, and a
busy file system may need a minute for the last bytes. A run waits this long only if a node died."""

_LOOK_SECONDS = 0.05


@dataclass(frozen=True)
class Target:
    """The checkpoint ``path``. Raises ValueError if its name cannot be used."""

    path: Path

    def __post_init__(self) -> None:
        if "\n" in str(self.path) or not self.path.name:
            raise ValueError(f"{str(self.path)!r}: give a file's path without line breaks")

    def coming(self, token: str) -> Path:
        """Return the path of the save ``token`` while it is being written."""
        return self.path.with_name(f".{self.path.name}.{token}.coming")

    def expected(self) -> list[Path]:
        """Return the files of all announced saves, the oldest first."""
        shape = re.compile(re.escape(f".{self.path.name}.") + r"\d{8}-\w+\.coming")
        try:
            names = [path.name for path in self.path.parent.iterdir()]
        except FileNotFoundError:
            return []
        return [self.path.with_name(name) for name in sorted(filter(shape.fullmatch, names))]

    def shares(self, folder: Path) -> bool:
        """Whether the checkpoint is on the file system of ``folder``, where save.sh writes none."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        return self.path.parent.stat().st_dev == folder.stat().st_dev

    def announce(self, *, folder: bool = False) -> str:
        """Announce a save; return the token that identifies it."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        latest = [int(path.name.split(".")[-2].partition("-")[0]) for path in self.expected()]
        token = f"{max(latest, default=0) + 1:08d}-{secrets.token_hex(4)}"
        partial = self.coming(token)
        partial.mkdir() if folder else partial.touch()
        return token

    def withdraw(self, token: str = "") -> None:
        """Withdraw the saves announced before ``token``, so that they cannot be published."""
        for path in self.expected():
            if not token or path < self.coming(token):
                withdraw(path)

    def settle(self, patience: float = PATIENCE_SECONDS) -> None:
        """Wait for announced saves; withdraw those without progress for ``patience`` seconds."""
        for path in self.expected():
            state, last_change = _look(path), time.monotonic()
            while state is not None:
                time.sleep(_LOOK_SECONDS)
                current = _look(path)
                if current != state:
                    state, last_change = current, time.monotonic()
                elif time.monotonic() - last_change > patience:
                    withdraw(path)

    def write(self, fill: Callable[[IO[Any]], None]) -> None:
        """Write the checkpoint now with ``fill``; readers see either the old or the new one."""
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
        """Write ``source`` as the announced save; False if it was withdrawn or had to stop.

        Stops if ``go_on``, which is called between parts, returns False. Raises the file system's
        OSError.
        """
        partial = self.coming(token)
        if source.is_dir():
            return self._publish_folder(partial, source)
        try:
            with source.open("rb", buffering=0) as data, partial.open("r+b", buffering=0) as file:
                while part := data.read(_PART):
                    if not go_on():
                        return False
                    rest_of_part = memoryview(part)
                    while rest_of_part:
                        rest_of_part = rest_of_part[file.write(rest_of_part) :]
                os.fsync(file.fileno())
            self.withdraw(token)
            partial.rename(self.path)
        except FileNotFoundError:
            return False
        self._sync()
        return True

    def _publish_folder(self, partial: Path, source: Path) -> bool:
        if not partial.exists():
            return False
        shutil.copytree(source, partial, dirs_exist_ok=True)
        for path in [partial, *partial.rglob("*")]:
            _sync(path)
        partial.rename(self.path)
        _sync(self.path.parent)
        return True

    def _sync(self) -> None:
        """Write the folder's entry to disk, too."""
        _sync(self.path.parent)


_PART = 8 << 20


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def withdraw(partial: Path) -> None:
    """Remove the announcement, so that the process that writes the save cannot publish it."""
    with contextlib.suppress(FileNotFoundError):
        if partial.is_dir():
            withdrawn_path = partial.with_suffix(".late")
            partial.rename(withdrawn_path)  # atomic, so that a writer finds nothing there
            shutil.rmtree(withdrawn_path, ignore_errors=True)
        else:
            partial.unlink()


def _look(path: Path) -> tuple[int, int] | None:
    """Return size and time of a file, or of all files in a folder; None if there is none. Opens
    files, so that NFS asks its server.
    """
    try:
        if path.is_dir():
            states = [state for file in path.rglob("*") if (state := _look(file))]
            return sum(size for size, _ in states), max((time for _, time in states), default=0)
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns
