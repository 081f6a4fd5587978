"""A training's checkpoints on request: ``_hops-JOB/checkpoint-STEP``.

In a folder of their own: no other training takes them for its own, and no schedule counts or
removes them. Trainer uploads nothing that begins with an underscore. The folder goes when the
training has ended.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hops_profiler import environment
from hops_profiler.checkpoint.folder import complete, settle

_STARTED = "started.json"
_SCHEDULED = "scheduled"
_TAKEN = "taken"


@dataclass(frozen=True)
class Own:
    """The checkpoints in ``folder``, each complete once it has the file ``last``."""

    folder: Path
    last: str

    def at(self, step: int) -> Path:
        return self.folder / f"checkpoint-{step}"

    def latest(self) -> Path | None:
        """That with the most steps, waited for if it is on its way; None: there is none, or another
        command line has made it, or another training of this run has gone on from it.
        """
        if _read(self.folder / _TAKEN) == environment.restarts():
            return None
        settle(self.folder)
        found = complete(self.folder, self.last)
        if found and not same_command(_read(self.folder / _STARTED), environment.command()):
            sys.stderr.write(f"hops: {self.folder}: not used, since another command has made it\n")
            return None
        return found[max(found)] if found else None

    def sign(self) -> None:
        """Note who makes what is about to be saved. Raises OSError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / _STARTED).write_text(json.dumps(environment.command()))

    def take(self) -> None:
        """A training goes on from it: no other one of this run does."""
        with contextlib.suppress(OSError):
            (self.folder / _TAKEN).write_text(str(environment.restarts()))

    def scheduled(self) -> Path | None:
        """The last checkpoint that the training has made since on its own schedule."""
        try:
            path = Path((self.folder / _SCHEDULED).read_text())
        except (OSError, ValueError):
            return None
        return path if (path / self.last).exists() else None

    def note_scheduled(self, path: Path) -> None:
        """``path`` follows those of this folder, if there are any."""
        if self.folder.is_dir():
            partial = self.folder / f".{_SCHEDULED}"
            with contextlib.suppress(OSError):
                partial.write_text(str(path))
                partial.replace(self.folder / _SCHEDULED)

    def clear(self, but: Path) -> None:
        """Remove all before ``but``, from which the training goes on, and what was never whole."""
        for shape in ("checkpoint-*", ".checkpoint-*.partial"):
            for path in self.folder.glob(shape):
                if path != but:
                    shutil.rmtree(path, ignore_errors=True)

    def remove(self) -> None:
        """The training has ended."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def set_aside(self) -> None:
        """The training could not go on from it. It is kept, but not tried again."""
        with contextlib.suppress(OSError):
            self.folder.rename(self.folder.with_name(f"{self.folder.name}.failed"))


def same_command(before: Any, now: dict[str, Any]) -> bool:
    """Whether two command lines are the same but for words that hops or Slurm has given, such as
    the learning rate for a number of GPUs.
    """
    try:
        pairs = list(zip(before["words"], now["words"]))  # noqa: B905 - Python 3.8 has no strict
        alike = len(before["words"]) == len(now["words"])
        given = [(before["given"].get(name), value) for name, value in now["given"].items()]
        return alike and all(old == new or (old, new) in given for old, new in pairs)
    except (TypeError, KeyError, AttributeError):
        return False


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None
