"""Estimates how many bytes a state has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch


def size_of(state: Any) -> int:
    """Return about the size of a save of ``state``; storages that tensors share count once."""
    storages: dict[int, int] = {}
    _add(state, storages, set())
    return sum(storages.values()) + 2**20 + 1024 * len(storages)


def _add(value: Any, storages: dict[int, int], visits: set[int]) -> None:
    if id(value) in visits:
        return
    visits.add(id(value))
    if hasattr(value, "to_local"):  # a DTensor: count this rank's part
        value = value.to_local()
    if isinstance(value, torch.Tensor):
        try:
            storage = value.untyped_storage()
            storages[storage.data_ptr() or id(value)] = storage.nbytes()
        except (RuntimeError, AttributeError, NotImplementedError):  # sparse, or the like
            storages[id(value)] = value.numel() * value.element_size()
    elif isinstance(value, Mapping):
        for part in value.values():
            _add(part, storages, visits)
    elif isinstance(value, (list, tuple)):
        for part in value:
            _add(part, storages, visits)
    elif isinstance(value, (bytes, bytearray)):
        storages[id(value)] = len(value)
    elif isinstance(size := getattr(value, "nbytes", None), int):  # such as NumPy's arrays
        storages[id(value)] = size
