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
_SCRIPT = environment.script()
"""As it is when the framework is imported: people edit scripts while they run."""


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
        if found and not self._is_ours():
            sys.stderr.write(f"hops: {self.folder}: not used, since another command has made it\n")
            return None
        return found[max(found)] if found else None

    def sign(self, coming: Path) -> None:
        """Note who makes ``coming``. What another command has made is set aside; one of the same
        step, from which the training did not go on, is removed. Raises OSError.
        """
        if not self._is_ours() and self.folder.exists() and not self.set_aside("other"):
            raise OSError(f"{self.folder} is another command's, and stays")
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / _STARTED).write_text(json.dumps(_command()))
        shutil.rmtree(coming, ignore_errors=True)

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
        if self._is_ours():
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
        self.has_saved()
        if self._is_ours():
            shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def is_useless(self) -> bool:
        """Whether one was set aside that could not be loaded: the next could not be, either."""
        return self._aside("failed").exists()

    def fails_anew(self) -> bool:
        """A save has failed: whether the run before could save, and this failure can be noted."""
        note, run = self._aside("unsaved"), environment.restarts()
        if not note.exists():
            with contextlib.suppress(OSError):
                note.write_text(str(run))
        return bool(_read(note) == run)  # of several ranks the first has noted it

    def has_saved(self) -> None:
        with contextlib.suppress(OSError):
            self._aside("unsaved").unlink()

    def set_aside(self, why: str = "failed") -> bool:
        """Keep it, but do not try it again; False if that cannot be done."""
        shutil.rmtree(self._aside(why), ignore_errors=True)
        try:
            self.folder.rename(self._aside(why))
        except OSError:
            return False
        return True

    def _aside(self, why: str) -> Path:
        return self.folder.with_name(f"{self.folder.name}.{why}")

    def _is_ours(self) -> bool:
        return same_command(_read(self.folder / _STARTED), _command())


def _command() -> dict[str, str]:
    return {**environment.command(), "script": _SCRIPT}


def same_command(before: Any, now: dict[str, str]) -> bool:
    """Whether it is the same script with the same words. Numbers may differ where the job's size
    does: scripts derive them from it, such as the steps whose gradients are accumulated.
    """
    if not isinstance(before, dict) or before.get("script") != now.get("script"):
        return False
    same = {name for name, digest in now.items() if before.get(name) == digest}
    return "exact" in same or ("shape" in same and "size" not in same)


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None
