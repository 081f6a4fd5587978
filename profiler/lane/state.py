"""A trial's state on the device: parameters, buffers, gradients, optimizer state.

It leaves and comes back storage by storage: a storage's bytes are copied to the host, erased and
freed (``resize_(0)``), and later allocated and copied back. Tensors and views keep their identity,
and whatever shares a storage still does. It is the same on a GPU and on the CPU, whose memory
stands for a GPU's.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterable
from typing import Any

import torch
from torch.utils._pytree import tree_flatten


class _Moved:
    """A storage that has left, and its copy on the host. ``late``: not used by a forward pass."""

    __slots__ = ("claimed", "copy", "late", "loaded", "size", "storage")

    def __init__(self, storage: Any, copy: torch.Tensor, *, late: bool) -> None:
        self.storage, self.copy, self.late = storage, copy, late
        self.size = copy.numel()
        self.claimed = self.loaded = False


class State:
    """The storages of one process's training on ``device``. Only its main thread calls this."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._found: dict[int, Any] = {}
        self._late: set[int] = set()
        self._moved: dict[int, _Moved] = {}
        self._spare: dict[int, list[torch.Tensor]] = {}
        self._lock = threading.Condition()

    @property
    def resident(self) -> bool:
        return not self._moved

    def find(self) -> int:
        """Look for what there is now: how many bytes it takes."""
        modules, optimizers = _live(torch.nn.Module), _live(torch.optim.Optimizer)
        used: list[Any] = [
            tensor
            for module in modules
            for tensor in (*module._parameters.values(), *module._buffers.values())
        ]
        for optimizer in optimizers:
            used += [p for group in optimizer.param_groups for p in group["params"]]
        gradients = [t.grad for t in used if t is not None]
        kept = [leaf for o in optimizers for leaf in tree_flatten(dict(o.state))[0]]
        self._found = self._storages(used)
        early = len(self._found)
        self._found.update(self._storages([*gradients, *kept]))
        self._late = set(list(self._found)[early:])
        return sum(storage.nbytes() for storage in self._found.values())

    def evict(self) -> int:
        """Copy everything to the host, erase and free it; the number of bytes."""
        size = self.find()
        moved = {}
        for key, storage in self._found.items():
            copy = self._host(storage.nbytes())
            copy.copy_(_bytes(storage), non_blocking=True)
            moved[key] = _Moved(storage, copy, late=key in self._late)
        self._synchronize()
        for storage in self._found.values():
            _bytes(storage).zero_()
            storage.resize_(0)
        self._moved, self._spare, self._found = moved, {}, {}
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        return size

    def load(self) -> None:
        """Bring everything back."""
        for item in list(self._moved.values()):
            self._need(item)
        self._finish()

    def _need(self, item: _Moved) -> None:
        if not item.loaded:
            item.storage.resize_(item.size)
            _bytes(item.storage).copy_(item.copy, non_blocking=True)
            item.loaded = True

    def _finish(self) -> None:
        self._synchronize()
        for item in self._moved.values():
            self._spare.setdefault(item.size, []).append(item.copy)
        self._moved = {}

    def _host(self, size: int) -> torch.Tensor:
        """Memory of the host, ``size`` bytes: what the state left free before, if there is any."""
        spare = self._spare.get(size)
        if spare:
            return spare.pop()
        return torch.empty(size, dtype=torch.uint8, pin_memory=self.device.type == "cuda")

    def _storages(self, tensors: Iterable[Any]) -> dict[int, Any]:
        """Their storages on this device, each once, by address of its object."""
        found = {}
        for tensor in tensors:
            if not isinstance(tensor, torch.Tensor) or tensor.device.type != self.device.type:
                continue
            if tensor.layout is not torch.strided:
                continue
            storage = tensor.untyped_storage()
            if storage.nbytes() and storage.resizable() and not self._is_shared(storage):
                found[storage._cdata] = storage
        return found

    def _is_shared(self, storage: Any) -> bool:
        """Shared with other processes, which know where it lies; PyTorch says so of all on GPUs."""
        return self.device.type == "cpu" and bool(storage.is_shared())

    def _synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def unmovable() -> str:
    """Why this process's training cannot be moved, "" if it can be."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return "it has a process group"
    if _live(torch.cuda.CUDAGraph):
        return "it has a CUDA graph"
    for module in _live(torch.nn.Module):
        for tensor in module._parameters.values():
            if tensor is None or type(tensor.data) is torch.Tensor:
                continue
            return f"{type(module).__name__} has a {type(tensor.data).__name__}"
    return ""


def _live(kind: Any) -> list[Any]:
    """The objects of a kind that this trial has made: older ones are frozen (`gc.freeze`)."""
    return [thing for thing in gc.get_objects() if issubclass(type(thing), kind)]


def _bytes(storage: Any) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def peak(device: torch.device) -> int | None:
    """The most bytes that the process has held on a GPU; None on a CPU, which does not count."""
    return torch.cuda.max_memory_reserved() if device.type == "cuda" else None
