"""Whether ranks read the same rows, as a pipeline's stages do with process groups of their own."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import torch.distributed as dist
from hops_profiler.timing.communication import open_store
from hops_profiler.timing.passes import DEPTH, checksum, tensors_in

MAX_BATCHES = 4
"""First batches that are compared."""


class SameRows:
    """What the first batches of this rank hold, in comparison with other ranks.

    ``sharing``: ranks that read the same and of which one, at least, is a stage: its backward pass
    gets gradients from another, or gives some to it. ``unclear``: that is not known of a stage, or
    ranks read the same for another reason.
    """

    def __init__(self) -> None:
        self.sharing, self.unclear = 1, False
        self.is_open, self._is_settled = True, False
        self._checksum = self._batches = 0
        self._store: Any = None

    def add(self, batch: Any) -> None:
        """Note one of the first batches that were read; those on a GPU show nothing."""
        self._batches += 1
        self.is_open = self._batches < MAX_BATCHES
        for tensor in tensors_in(batch, DEPTH):
            self._checksum = checksum(tensor, self._checksum) or self._checksum

    def expect(self, *, is_stage: bool) -> None:
        """Until all ranks have told, what a stage trains on is unclear."""
        self.unclear = self.sharing == 1 and (self.unclear or is_stage)

    def exchange(self, *, is_stage: bool, settles: bool) -> None:
        """Compare with the other ranks, until all have told and every rank knows whether it is a
        stage (``settles``). May wait for the network.
        """
        if self._is_settled:
            return
        with suppress(Exception):  # the group, or the store, is gone
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
