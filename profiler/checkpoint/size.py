"""How many bytes a state has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch


def size_of(state: Any) -> int:
    """About as many as a save of it has; what many tensors share counts once."""
    storages: dict[int, int] = {}
    _add(state, storages, set())
    return sum(storages.values()) + 2**20 + 1024 * len(storages)


def _add(value: Any, storages: dict[int, int], seen: set[int]) -> None:
    if id(value) in seen:
        return
    seen.add(id(value))
    if hasattr(value, "to_local"):  # a DTensor, of which this rank has a part
        value = value.to_local()
    if isinstance(value, torch.Tensor):
        try:
            storage = value.untyped_storage()
            storages[storage.data_ptr() or id(value)] = storage.nbytes()
        except (RuntimeError, AttributeError, NotImplementedError):  # sparse, or of another kind
            storages[id(value)] = value.numel() * value.element_size()
    elif isinstance(value, Mapping):
        for one in value.values():
            _add(one, storages, seen)
    elif isinstance(value, (list, tuple)):
        for one in value:
            _add(one, storages, seen)
    elif isinstance(value, (bytes, bytearray)):
        storages[id(value)] = len(value)
    elif isinstance(size := getattr(value, "nbytes", None), int):  # NumPy's arrays, and alike
        storages[id(value)] = size
