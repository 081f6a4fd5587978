"""Which checkpoints of a folder are this job's: a file beside them says so.

``.hops-JOB`` begins with the time of the job's first checkpoint on request, and names those that
the framework's own schedule would not have made, one a line. What was written since then is the
job's, by the schedule too; what was there before may be another training's.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from hops_profiler.checkpoint.target import Target

_SECONDS = 2.0
"""File systems note times to about so much."""


@dataclass(frozen=True)
class Marks:
    """The checkpoints ``PREFIX-STEP`` in ``folder``, each complete once it has the file ``last``.

    ``training``: the job, and which of its trainings where it has several one after the other.
    """

    folder: Path
    training: str
    prefix: str
    last: str

    @property
    def path(self) -> Path:
        return self.folder / f".hops-{self.training}"

    def add(self, name: str, *, scheduled: bool = False) -> None:
        """A checkpoint ``name`` is about to be written on request; ``scheduled``: it was due."""
        self.folder.mkdir(parents=True, exist_ok=True)
        names = self._names()
        if not names:
            self.path.touch()
            names = [str(self.path.stat().st_mtime)]  # by the file system's own clock
        if not scheduled and name not in names:
            names.append(name)
        partial = self.path.with_name(f"{self.path.name}.new")
        partial.write_text("".join(f"{one}\n" for one in names))
        partial.replace(self.path)

    def latest(self) -> Path | None:
        """The job's checkpoint with the most steps; None: it has none."""
        try:
            began = float(self._names()[0]) - _SECONDS
        except (IndexError, ValueError):
            return None
        found = {}
        for path in self.folder.glob(f"{self.prefix}-*"):
            step = re.fullmatch(re.escape(self.prefix) + r"-(\d+)", path.name)
            with contextlib.suppress(OSError):
                if step and (path / self.last).stat().st_mtime >= began:
                    found[int(step[1])] = path
        return found[max(found)] if found else None

    def settle(self) -> None:
        """Wait for those that are still on their way from a node's memory."""
        for name in self._names()[1:]:
            Target(self.folder / name).settle()

    def clear(self, but: Path) -> None:
        """Remove the checkpoints on request before ``but``, from which the job goes on."""
        for name in self._names()[1:]:
            path = self.folder / name
            if name != but.name and re.fullmatch(re.escape(self.prefix) + r"-\d+", name):
                shutil.rmtree(path, ignore_errors=True)

    def _names(self) -> list[str]:
        try:
            return self.path.read_text().splitlines()
        except OSError:
            return []
