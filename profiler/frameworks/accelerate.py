"""Accelerate: the job leaves after the script's own next ``save_state``.

Accelerate has no loop: which epoch and batch a training is at, only its script knows. A state that
was saved elsewhere could not be resumed; what the script itself has saved it can. It leaves at the
next backward pass: scripts note beside a state which step it is of, and the last save is of a
training that ends. Looked at:
accelerate 1.15 (``accelerator.py``, ``checkpointing.py``).
"""

from __future__ import annotations

import functools
import signal
from datetime import timedelta
from types import ModuleType
from typing import Any

import torch.distributed as dist
from hops_profiler.checkpoint.leaving import leave
from hops_profiler.checkpoint.wishes import Asked, first, several
from hops_profiler.frameworks import request

_PATIENCE = timedelta(seconds=20)
"""For the other ranks. One may have saved before its signal came: then all leave with the next."""


def attach(module: ModuleType) -> None:
    """Have ``module.Accelerator`` leave after a save, once hops has asked."""
    save, backward = module.Accelerator.save_state, module.Accelerator.backward
    asked: list[Asked] = []
    saves, leaves = 0, False

    @functools.wraps(save)
    def saved(self: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal saves, leaves
        saves += 1
        if not asked and request.possible(self.num_processes):
            asked.append(Asked(signal.SIGUSR1))  # from here on: now it is known that it saves
        result = save(self, *args, **kwargs)
        leaves = leaves or bool(asked and asked[0].now and _all_have(saves))
        return result

    @functools.wraps(backward)
    def left(self: Any, *args: Any, **kwargs: Any) -> Any:
        if leaves:
            leave(first=first())
        return backward(self, *args, **kwargs)

    module.Accelerator.save_state, module.Accelerator.backward = saved, left


def _all_have(saves: int) -> bool:
    """Whether all ranks get here after this save. No collective call: a script that saves on its
    first rank alone, which works, would hang.
    """
    if not several():
        return True
    store = dist.distributed_c10d._get_default_store()
    here = [f"hops/{saves}/{rank}" for rank in range(dist.get_world_size())]
    store.set(here[dist.get_rank()], "saved")
    verdict = b"leave"
    try:
        store.wait(here, _PATIENCE)
    except RuntimeError:
        verdict = b"stay"
    # The first to know decides: one that comes later may see what another has given up on.
    decided: bytes = store.compare_set(f"hops/{saves}", "", verdict.decode())
    return decided == b"leave"
