"""A training's checkpoints on request: ``_hops-JOB/checkpoint-STEP``.

In a folder of their own: no other training takes them for its own, and no schedule counts or
removes them. Trainer uploads nothing that begins with an underscore. The folder goes when the
training has ended.
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
"""As it is when the framework is imported: people edit scripts while they run."""

_VARIABLES = environment.of_the_user(startup.ENVIRON)


@dataclass(frozen=True)
class OwnCheckpoints:
    """The checkpoints in ``folder``, each complete once it has the file ``last``. ``beginning``:
    the file of what the training's first run notes of itself; None: in ``folder``.
    """

    folder: Path
    last: str
    beginning: Path | None = None

    def at(self, step: int) -> Path:
        return self.folder / f"checkpoint-{step}"

    def first_note(self, now: Any) -> Any:
        """What the first run of this training has noted of itself, also where it has saved nothing
        since: ``now`` where this is the first. Plain values; on any rank.
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
        """That with the most steps, waited for if it is on its way; None: there is none, or another
        command line has made it, or another training of this run has gone on from it.
        """
        is_taken = _read(self.folder / _TAKEN_FILE) == environment.restarts()
        if is_taken or self._is_useless() or not self._is_ours():
            return None
        settle(self.folder)
        checkpoints = complete(self.folder, self.last)
        return checkpoints[max(checkpoints)] if checkpoints else None

    def sign(self, partial: Path) -> None:
        """Note who makes ``partial``. What another command has made is set aside; one of the same
        step, from which the training did not go on, is removed. Raises OSError.
        """
        if not self._is_ours() and self.folder.exists() and not self.set_aside("other"):
            raise OSError(f"{self.folder} is another command's, and stays")
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / _START_FILE).write_text(json.dumps(_identity().as_json()))
        shutil.rmtree(partial, ignore_errors=True)

    def take(self) -> bool:
        """A training has begun: no other one of this run goes on from it. False: not noted."""
        try:
            (self.folder / _TAKEN_FILE).write_text(str(environment.restarts()))
        except OSError:
            return False
        return True

    def last_scheduled(self) -> Path | None:
        """The last checkpoint that the training has made since on its own schedule, unless another
        training has replaced it.
        """
        stored_note = _read(self.folder / _SCHEDULE_FILE)
        with contextlib.suppress(OSError, TypeError, KeyError):
            path = Path(stored_note["path"])
            if (path / self.last).stat().st_mtime_ns == stored_note["written"]:
                return path
        return None

    def note_scheduled(self, path: Path) -> None:
        """``path`` follows those of this folder, if there are any."""
        if self._is_ours():
            partial = self.folder / f".{_SCHEDULE_FILE}"
            with contextlib.suppress(OSError):
                written_at = (path / self.last).stat().st_mtime_ns
                partial.write_text(json.dumps({"path": str(path), "written": written_at}))
                partial.replace(self.folder / _SCHEDULE_FILE)

    def clear(self, but: Path) -> None:
        """Remove all before ``but``, from which the training goes on, and what was never whole."""
        for shape in ("checkpoint-*", ".checkpoint-*.partial"):
            for path in self.folder.glob(shape):
                if path != but:
                    shutil.rmtree(path, ignore_errors=True)

    def remove(self) -> None:
        """The training has ended."""
        self.has_saved()
        with contextlib.suppress(OSError):
            self._first_note_path().unlink()
        if self._is_ours():
            shutil.rmtree(self.folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # that of another command is not empty
            self.folder.rmdir()

    def is_usable(self) -> bool:
        """Whether a save could be used. Not where one before could not: hops would move the job in
        vain. Asked by the first training of a run.
        """
        if self._is_useless():
            return False
        has_saves = environment.restarts() and any(self.folder.glob("*checkpoint-*"))
        if not has_saves or self._is_ours():
            return True
        sys.stderr.write(
            f"hops: {self.folder}: not used, since another command has made it ({self._change()}"
            " differs); this job saves no more on request\n"
        )
        self.decline()
        return False

    def decline(self) -> None:
        """No later run of the job saves on request."""
        with contextlib.suppress(OSError):
            (self.folder / _UNUSED_FILE).touch()

    def fails_anew(self) -> bool:
        """A save has failed: whether the run before could save, and this failure can be noted."""
        note, run = self._path_aside("unsaved"), environment.restarts()
        if not note.exists():
            with contextlib.suppress(OSError):
                note.write_text(str(run))
        return bool(_read(note) == run)  # of several ranks the first has noted it

    def has_saved(self) -> None:
        """This rank's part: a failure in an earlier run no longer counts."""
        note = self._path_aside("unsaved")
        if _read(note) != environment.restarts():
            with contextlib.suppress(OSError):
                note.unlink()

    def _is_useless(self) -> bool:
        return self._path_aside("failed").exists() or (self.folder / _UNUSED_FILE).exists()

    def set_aside(self, reason: str = "failed") -> bool:
        """Keep it, but do not try it again; False if that cannot be done, as where one is kept."""
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
