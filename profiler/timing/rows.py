"""Detects ranks that read the same rows, such as pipeline stages with their own process groups."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import torch.distributed as dist
from hops_profiler.timing.communication import open_store
from hops_profiler.timing.passes import DEPTH, checksum, tensors_in

MAX_BATCHES = 4
"""Number of first batches that are compared."""


class SameRows:
    """Compares the first batches of this rank with those of the other ranks.

    ``sharing`` is the number of ranks that read the same rows if at least one of them is a stage,
    whose backward pass receives gradients from another rank or sends some, else 1. ``unclear`` is
    True if this is not known yet for a stage, or if ranks read the same rows for another reason.
    """

    def __init__(self) -> None:
        self.sharing, self.unclear = 1, False
        self.is_open, self._is_settled = True, False
        self._checksum = self._batches = 0
        self._store: Any = None

    def add(self, batch: Any) -> None:
        """Note one of the first batches that were read; batches on a GPU are not compared."""
        self._batches += 1
        self.is_open = self._batches < MAX_BATCHES
        for tensor in tensors_in(batch, DEPTH):
            self._checksum = checksum(tensor, self._checksum) or self._checksum

    def expect(self, *, is_stage: bool) -> None:
        """Mark a stage's samples as unclear until all ranks have exchanged their checksums."""
        self.unclear = self.sharing == 1 and (self.unclear or is_stage)

    def exchange(self, *, is_stage: bool, settles: bool) -> None:
        """Compare with the other ranks; may wait for the network. Does nothing once the ranks have
        all been compared with ``settles``, when every rank knew whether it is a stage.
        """
        if self._is_settled:
            return
        with suppress(Exception):  # the process group or its store is gone
            rank, world = dist.get_rank(), dist.get_world_size()
            self._store = self._store or open_store()
            checksum = self._checksum if self._batches else None
            self._store.set(f"hops_profiler/rows/{rank}", f"{checksum} {is_stage:d}")
            keys = [f"hops_profiler/rows/{peer}" for peer in range(world)]
            if not self._store.check(keys):
                return
            words = [self._store.get(key).decode().split() for key in keys]
            self._is_settled = settles
            same = [stage == "1" for text, stage in words if text == str(checksum)]
            if checksum is not None and len(same) > 1:
                self.sharing = len(same) if any(same) else 1
                self.unclear = not any(same)
