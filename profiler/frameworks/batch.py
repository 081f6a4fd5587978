"""Keeps the samples of a step on another number of GPUs, by gradient accumulation."""

from __future__ import annotations

import contextlib
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hops_profiler import environment

_NOTE = "hops.json"


@dataclass(frozen=True)
class Split:
    """``micro_batch`` samples at a time on each of ``ranks``, ``accumulation`` times per step."""

    micro_batch: int
    accumulation: int
    ranks: int

    @property
    def global_batch(self) -> int:
        return self.micro_batch * self.accumulation * self.ranks

    def keeping(self, global_batch: int) -> Split | None:
        """Split ``global_batch`` samples per step over the same ranks, as many at a time as
        possible but no more than now; None if the ranks cannot share them evenly.
        """
        share, remainder = divmod(global_batch, self.ranks)
        if remainder or not share:
            return None
        micro_batch = next(
            size for size in range(min(self.micro_batch, share), 0, -1) if share % size == 0
        )
        return Split(micro_batch, share // micro_batch, self.ranks)


@dataclass(frozen=True)
class Note:
    """What a checkpoint itself does not say: its run's samples per step, the comment's learning
    rate, which a script may follow, the number of micro-batches of a rank in a step, and that of
    ranks.
    """

    global_batch: int
    learning_rate: float | None
    accumulation: int = 1
    ranks: int = 1

    @classmethod
    def now(cls, split: Split) -> Note:
        return cls(split.global_batch, environment.learning_rate(), split.accumulation, split.ranks)

    @classmethod
    def read(cls, checkpoint: Path | None) -> Note | None:
        """Read a checkpoint's note; None if it has none."""
        try:
            text = (checkpoint / _NOTE).read_text() if checkpoint else "null"
            return cls.from_dict(json.loads(text))
        except (OSError, ValueError):
            return None

    @classmethod
    def from_dict(cls, content: Any) -> Note | None:
        """Read what `asdict` made from a file or a checkpoint; None for anything else."""
        try:
            batch, rate = content["global_batch"], content["learning_rate"]
            counts = (batch, content["accumulation"], content.get("ranks", 1))
        except (AttributeError, KeyError, TypeError):
            return None
        usable = all(type(count) is int and count > 0 for count in counts)
        return cls(batch, rate, *counts[1:]) if usable else None

    def write(self, checkpoint: Path) -> None:
        """Write the note next to the framework's files. A checkpoint is valid without it."""
        with contextlib.suppress(OSError):
            (checkpoint / _NOTE).write_text(json.dumps(asdict(self)))


def keep_samples(split: Split, note: Note | None) -> Split:
    """Adapt ``split`` to a checkpoint with ``note``: keep its samples per step, if the ranks can
    share them evenly and the learning rate does not follow the number of GPUs.
    """
    global_batch = kept_batch(split, note)
    same_batch = split if global_batch == split.global_batch else split.keeping(global_batch)
    if same_batch is None:
        _tell_of_change(split, global_batch, f"{split.ranks} ranks cannot share them evenly")
    return same_batch or split


def kept_batch(split: Split, note: Note | None) -> int:
    """Return how many samples a step has after a checkpoint with ``note``."""
    if note is None or note.global_batch == split.global_batch:
        return split.global_batch
    if note.learning_rate != environment.learning_rate():
        _tell_of_change(split, note.global_batch, "HOPS_LR is another")
        return split.global_batch
    return note.global_batch


def _tell_of_change(split: Split, before: int, reason: str) -> None:
    sys.stderr.write(
        f"hops: a step now has {split.global_batch} samples, not {before}, since {reason}: the"
        " framework counts the steps that are done as steps of this size\n"
    )
