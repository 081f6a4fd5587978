"""How many samples a batch holds."""

from __future__ import annotations

from typing import Any

import torch

DEPTH = 4


def samples_of(batch: Any, depth: int = DEPTH) -> int:
    """Length of the first tensor's first axis, looked for in lists, tuples and dicts; else 0.

    Objects with a batch size of their own (graph batches, packed sequences) answer for
    themselves where they do so under a name in use: ``num_graphs``, ``batch_size``.
    """
    if isinstance(batch, torch.Tensor):
        return int(batch.shape[0]) if batch.dim() else 1
    if depth == 0 or batch is None or isinstance(batch, (str, bytes)):
        return 0
    for name in ("num_graphs", "batch_size"):
        value = getattr(batch, name, None)
        if isinstance(value, int):
            return value
    if hasattr(batch, "values") and callable(batch.values):
        batch = list(batch.values())
    if isinstance(batch, (list, tuple)):
        for part in batch:
            found = samples_of(part, depth - 1)
            if found:
                return found
    return 0
