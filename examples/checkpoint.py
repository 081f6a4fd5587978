"""Checkpoints on shared storage, written atomically."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch


@dataclass(frozen=True)
class Checkpoints:
    """One job's folder: ``checkpoint.pt``, ``stop.N``, ``finished`` and ``history.jsonl``.

    The batch script creates ``stop.N`` in run N when it gets the checkpoint signal. A file is used
    instead of a forwarded signal because it cannot be lost while Python starts, and because
    torchrun would end on the signal but does not see the file.
    """

    folder: Path
    run: int

    @property
    def stop_requested(self) -> bool:
        return (self.folder / f"stop.{self.run}").exists()

    def load(self) -> dict[str, Any] | None:
        path = self.folder / "checkpoint.pt"
        return torch.load(path, map_location="cpu", weights_only=True) if path.exists() else None

    def save(self, state: dict[str, Any]) -> None:
        """Write atomically: readers see the old or the new checkpoint, even after a crash."""
        self.folder.mkdir(parents=True, exist_ok=True)
        partial = self.folder / "checkpoint.pt.partial"
        with partial.open("wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(self.folder / "checkpoint.pt")

    def finish(self) -> None:
        (self.folder / "finished").touch()

    def record(self, **entry: object) -> None:
        """Append one line about this run, for people and tests."""
        with (self.folder / "history.jsonl").open("a") as file:
            file.write(json.dumps({"run": self.run, **entry}) + "\n")
