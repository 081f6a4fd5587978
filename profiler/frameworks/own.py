"""A training's checkpoints on request: ``_hops-TRAINING/checkpoint-STEP``.

In a folder of their own: no other training, of this job or another, takes them for its own, and no
schedule counts or removes them. Trainer uploads nothing that begins with an underscore.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from hops_profiler.checkpoint.folder import complete, settle


@dataclass(frozen=True)
class Own:
    """The checkpoints in ``folder``, each complete once it has the file ``last``."""

    folder: Path
    last: str

    def at(self, step: int) -> Path:
        return self.folder / f"checkpoint-{step}"

    def latest(self) -> Path | None:
        """That with the most steps, waited for if it is on its way; None: there is none."""
        settle(self.folder)
        found = complete(self.folder, self.last)
        return found[max(found)] if found else None

    def clear(self, but: Path) -> None:
        """Remove all before ``but``, from which the training goes on, and what was never whole."""
        for shape in ("checkpoint-*", ".checkpoint-*.partial"):
            for path in self.folder.glob(shape):
                if path != but:
                    shutil.rmtree(path, ignore_errors=True)
