"""A training's checkpoints on request: ``_hops-JOB/checkpoint-STEP``.

They have their own folder, so that no other training takes them for its own, and no schedule counts
or removes them. Trainer does not upload names that begin with an underscore. The folder is removed
when the training has ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hops_profiler import environment, startup
from hops_profiler.checkpoint.folder import complete, settle
from hops_profiler.frameworks.training_identity import TrainingIdentity, script, variables, words

_START_FILE = "started.json"
_SCHEDULE_FILE = "scheduled"
_TAKEN_FILE = "taken"
_UNUSED_FILE = "unused"
_FIRST_NOTE_FILE = "beginning.json"
_SCRIPT = script()
"""Read when the framework is imported, since people edit scripts while they run."""

_VARIABLES = environment.user_variables(startup.ENVIRON)


@dataclass(frozen=True)
class OwnCheckpoints:
    """The checkpoints in ``folder``, each complete once it has the file ``last``. ``beginning`` is
    the file in which the training's first run describes itself, None if that is in ``folder``.
    """

    folder: Path
    last: str
    beginning: Path | None = None

    def at(self, step: int) -> Path:
        return self.folder / f"checkpoint-{step}"

    def first_note(self, now: Any) -> Any:
        """Return what the first run of this training noted about itself, even if it saved nothing
        later; ``now`` if this is the first run. The values are plain. Any rank may call this.
        """
        path = self._first_note_path()
        stored_note = _read(path) if environment.restarts() else None
        if isinstance(stored_note, dict) and not _identity().change_since(
            stored_note.get("identity")
        ):
            return stored_note.get("note")
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.parent == self.folder and not (self.folder / _START_FILE).exists():
                (self.folder / _START_FILE).write_text(json.dumps(_identity().as_json()))
            partial.write_text(json.dumps({"identity": _identity().as_json(), "note": now}))
            partial.replace(path)
        return now

    def _first_note_path(self) -> Path:
        return self.beginning or self.folder / _FIRST_NOTE_FILE

    def latest(self) -> Path | None:
        """Return the checkpoint with the most steps, after waiting for one that is being written;
        None if there is none, another command line has made it, or another training of this run has
        resumed from it.
        """
        is_taken = _read(self.folder / _TAKEN_FILE) == environment.restarts()
        if is_taken or self._is_useless() or not self._is_ours():
            return None
        settle(self.folder)
        checkpoints = complete(self.folder, self.last)
        return checkpoints[max(checkpoints)] if checkpoints else None

    def sign(self, partial: Path) -> None:
        """Note who makes ``partial``. Checkpoints of another command are set aside; one of the same
        step, from which the training did not resume, is removed. Raises OSError.
        """
        if not self._is_ours() and self.folder.exists() and not self.set_aside("other"):
            raise OSError(f"{self.folder} belongs to another command, and cannot be set aside")
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / _START_FILE).write_text(json.dumps(_identity().as_json()))
        shutil.rmtree(partial, ignore_errors=True)

    def take(self) -> bool:
        """Note that a training has resumed, so that no other of this run does; False on failure."""
        try:
            (self.folder / _TAKEN_FILE).write_text(str(environment.restarts()))
        except OSError:
            return False
        return True

    def last_scheduled(self) -> Path | None:
        """Return the last checkpoint that the training has made later on its own schedule, unless
        another training has replaced it.
        """
        stored_note = _read(self.folder / _SCHEDULE_FILE)
        with contextlib.suppress(OSError, TypeError, KeyError):
            path = Path(stored_note["path"])
            if (path / self.last).stat().st_mtime_ns == stored_note["written"]:
                return path
        return None

    def note_scheduled(self, path: Path) -> None:
        """Note that ``path`` is later than the checkpoints in this folder, if there are any."""
        if self._is_ours():
            partial = self.folder / f".{_SCHEDULE_FILE}"
            with contextlib.suppress(OSError):
                written_at = (path / self.last).stat().st_mtime_ns
                partial.write_text(json.dumps({"path": str(path), "written": written_at}))
                partial.replace(self.folder / _SCHEDULE_FILE)

    def clear(self, but: Path) -> None:
        """Remove all but ``but``, from which the training resumes, including incomplete ones."""
        for shape in ("checkpoint-*", ".checkpoint-*.partial"):
            for path in self.folder.glob(shape):
                if path != but:
                    shutil.rmtree(path, ignore_errors=True)

    def remove(self) -> None:
        """Remove the folder when the training has ended."""
        self.has_saved()
        with contextlib.suppress(OSError):
            self._first_note_path().unlink()
        if self._is_ours():
            shutil.rmtree(self.folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # another command's is not empty
            self.folder.rmdir()

    def is_usable(self) -> bool:
        """Whether a save could be used. It could not if an earlier one could not, and hops would
        move the job in vain. The first training of a run asks.
        """
        if self._is_useless():
            return False
        has_saves = environment.restarts() and any(self.folder.glob("*checkpoint-*"))
        if not has_saves or self._is_ours():
            return True
        sys.stderr.write(
            f"hops: {self.folder}: not used, since another command has made it ({self._change()}"
            " differs); this job no longer saves on request\n"
        )
        self.decline()
        return False

    def decline(self) -> None:
        """Let no later run of the job save on request."""
        with contextlib.suppress(OSError):
            (self.folder / _UNUSED_FILE).touch()

    def fails_anew(self) -> bool:
        """Note that a save failed; return whether that worked, and the run before could save."""
        note, run = self._path_aside("unsaved"), environment.restarts()
        if not note.exists():
            with contextlib.suppress(OSError):
                note.write_text(str(run))
        return bool(_read(note) == run)  # the first of several ranks has noted it

    def has_saved(self) -> None:
        """Note that this rank has saved, so that a failure in an earlier run no longer counts."""
        note = self._path_aside("unsaved")
        if _read(note) != environment.restarts():
            with contextlib.suppress(OSError):
                note.unlink()

    def _is_useless(self) -> bool:
        return self._path_aside("failed").exists() or (self.folder / _UNUSED_FILE).exists()

    def set_aside(self, reason: str = "failed") -> bool:
        """Keep the folder, but do not use it again; False if it cannot be renamed."""
        try:
            self.folder.rename(self._path_aside(reason))
        except OSError:
            return False
        return True

    def _path_aside(self, reason: str) -> Path:
        return self.folder.with_name(f"{self.folder.name}.{reason}")

    def _is_ours(self) -> bool:
        return not self._change()

    def _change(self) -> str:
        return _identity().change_since(_read(self.folder / _START_FILE))


def _identity() -> TrainingIdentity:
    nodes, sizes = environment.node_names(), environment.sizes()
    return TrainingIdentity(_SCRIPT, words(nodes, sizes), variables(_VARIABLES, nodes, sizes))


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None
