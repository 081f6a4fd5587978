"""Changes to a machine, each of which describes itself before it is made."""

from __future__ import annotations

import difflib
import os
import pwd
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from hopsd.errors import HopsError

BACKUP = ".before-hops"


class SetupError(HopsError):
    """A step failed; the message says why and what the administrator can do."""


class Change(Protocol):
    """A change to make, and its description in one or more lines."""

    @property
    def description(self) -> str: ...

    def make(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Write:
    """Write a file. An existing file keeps owner and mode and, with ``keep``, a backup copy."""

    path: Path
    text: str
    keep: bool = False

    @property
    def description(self) -> str:
        old = self.path.read_text(errors="replace") if self.path.exists() else ""
        lines = difflib.unified_diff(
            old.splitlines(),
            self.text.splitlines(),
            str(self.path),
            str(self.path),
            n=1,
            lineterm="",
        )
        return "\n".join(lines) or f"write {self.path}"

    def make(self) -> None:
        path = self.path.resolve()
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        if self.keep and path.exists() and not Path(f"{path}{BACKUP}").exists():
            shutil.copy2(path, f"{path}{BACKUP}")
        new = Path(f"{path}.hops-new")
        new.write_text(self.text, errors="surrogateescape")
        if path.exists():
            status = path.stat()
            os.chown(new, status.st_uid, status.st_gid)
            new.chmod(status.st_mode & 0o7777)
        else:
            new.chmod(0o644)
        new.replace(path)


@dataclass(frozen=True, slots=True)
class SymbolicLink:
    """Replace a file by a symbolic link."""

    path: Path
    target: Path

    @property
    def description(self) -> str:
        return f"ln -sfn {self.target} {self.path}"

    def make(self) -> None:
        self.path.unlink(missing_ok=True)
        self.path.symlink_to(self.target)


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove a file or a link."""

    path: Path

    @property
    def description(self) -> str:
        return f"rm {self.path}"

    def make(self) -> None:
        self.path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class RunCommand:
    """Run a command as root or ``user``, retrying for ``patience`` seconds while it fails."""

    words: tuple[str, ...]
    user: str | None = None
    patience: float = 0.0

    @property
    def description(self) -> str:
        prefix = f"sudo -u {self.user} " if self.user else ""
        return prefix + shlex.join(self.words)

    def make(self) -> None:
        deadline = time.monotonic() + self.patience
        while True:
            status, message = output(self.words, self.user)
            if status == 0:
                return
            if time.monotonic() >= deadline:
                raise SetupError(f"{self.description}: {message or f'exit code {status}'}")
            time.sleep(0.5)


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait until the previous changes have taken effect."""

    description: str
    is_reached: Callable[[], bool]
    seconds: float

    def make(self) -> None:
        deadline = time.monotonic() + self.seconds
        while not self.is_reached():
            if time.monotonic() >= deadline:
                raise SetupError(f"{self.description}: still not so after {self.seconds:g} s")
            time.sleep(0.5)


def output(words: tuple[str, ...], user: str | None = None, stdin: str = "") -> tuple[int, str]:
    """Run a command that reads ``stdin``; returns its exit status and output.

    The output is its standard output or, if that is empty, its standard error.

    Raises:
        SetupError: there is no such command or user, or it took more than five minutes.
    """
    try:
        account = pwd.getpwnam(user) if user else None
        result = subprocess.run(
            words,
            user=account.pw_uid if account else None,
            group=account.pw_gid if account else None,
            extra_groups=[] if account else None,
            cwd="/",
            env={**os.environ, "LC_ALL": "C"},
            input=stdin,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=300,
            check=False,
        )
    except (OSError, KeyError, subprocess.TimeoutExpired) as error:
        raise SetupError(f"{words[0]}{f' as {user}' if user else ''}: {error}") from error
    return result.returncode, (result.stdout.strip() or result.stderr.strip())
