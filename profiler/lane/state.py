"""A trial's state on the device: parameters, buffers, gradients, optimizer state.

It leaves and returns storage by storage: a storage's bytes are copied to the host, erased and
freed (``resize_(0)``), and later allocated and copied back. Tensors and views keep their identity,
and still share their storages. On a CPU, its memory is used like a GPU's.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from hops_profiler.lane.pipeline import HostCopy, Pipeline, can_pipeline, elements
from hops_profiler.lane.signals import DelayedSignals
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils._pytree import tree_flatten

_FSDP = {"FullyShardedDataParallel", "FSDPModule"}
"""Module classes of torch.distributed.fsdp, versions 1 and 2."""


@dataclass
class Inventory:
    """A training's ``storages`` by identity, with their use: 0 in forward passes, 1 gradients, 2 in
    the optimizer. ``obstacle`` says why they cannot be moved, "" if they can. With ``plain`` they
    must be loaded at once.
    """

    storages: dict[int, tuple[Any, int]] = field(default_factory=dict)
    obstacle: str = ""
    plain: bool = False

    @property
    def size(self) -> int:
        """Bytes of all storages."""
        return sum(storage.nbytes() for storage, _ in self.storages.values())

    def add(self, tensors: Iterable[Any], use: int, device: torch.device) -> None:
        """Add the tensors' storages on this device, except those not owned by PyTorch alone."""
        for tensor in tensors:
            if not isinstance(tensor, torch.Tensor) or tensor.device.type != device.type:
                continue
            if tensor.layout is not torch.strided:
                continue
            storage = tensor.untyped_storage()
            # PyTorch reports all storages on GPUs as shared.
            is_shared = device.type == "cpu" and storage.is_shared()
            if storage.nbytes() and storage.resizable() and not is_shared:
                self.storages.setdefault(storage._cdata, (storage, use))


class State:
    """The state of this process's training on ``device``; only its main thread may use this.

    With ``has_peers`` it is a rank of a trial whose ranks all pause at once, and may have a process
    group.
    """

    def __init__(self, device: torch.device, *, has_peers: bool = False) -> None:
        self.device = device
        self._has_peers = has_peers
        self._copies: dict[int, HostCopy] = {}
        self._spare: dict[int, list[torch.Tensor]] = {}
        self._order: dict[int, int] = {}
        self._pipeline: Pipeline | None = None
        self._plain = False
        self._has_hooks = False

    def look(self) -> Inventory:
        """Find the state among all objects that the script has made, which takes milliseconds."""
        inventory = Inventory()
        modules, optimizers, graphs = _live(
            torch.nn.Module, torch.optim.Optimizer, torch.cuda.CUDAGraph
        )
        tensors: list[Any] = []
        for module in modules:
            tensors += [*module._parameters.values(), *module._buffers.values()]
            inventory.plain = inventory.plain or isinstance(module, torch.jit.ScriptModule)
        for optimizer in optimizers:
            tensors += [p for group in optimizer.param_groups for p in group["params"]]
        tensors = [tensor for tensor in tensors if tensor is not None]
        inventory.add(tensors, 0, self.device)
        inventory.add([tensor.grad for tensor in tensors if tensor.is_leaf], 1, self.device)
        leaves = [leaf for o in optimizers for leaf in tree_flatten(dict(o.state))[0]]
        inventory.add(leaves, 2, self.device)
        inventory.obstacle = _find_obstacle(modules, tensors, graphs, has_peers=self._has_peers)
        # No mode notices when DistributedDataParallel sends buffers to the other ranks.
        inventory.plain = inventory.plain or self._has_peers
        return inventory

    def evict(self, inventory: Inventory) -> None:
        """Copy the storages to the host, erase and free them."""
        copies = {}
        for key, (storage, use) in inventory.storages.items():
            copy = self._host(storage.nbytes())
            copy.copy_(elements(storage), non_blocking=True)
            copies[key] = HostCopy(storage, copy, use)
        self._synchronize()
        for storage, _ in inventory.storages.values():
            elements(storage).zero_()
            storage.resize_(0)
        self._copies, self._spare, self._plain = copies, {}, inventory.plain
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def load(self) -> None:
        """Load everything."""
        self.settle()
        for item in self._copies.values():
            item.load()
        self._finish_load()

    def load_behind(self, signals: DelayedSignals | None = None) -> None:
        """Load everything while the training goes on; see :mod:`pipeline`.

        ``signals`` are released once everything is there.
        """
        signals = signals or DelayedSignals()
        if self._plain or not self._copies or not can_pipeline():
            self.load()
            signals.release()
            return
        if not self._has_hooks:
            self._hook()
        self._pipeline = Pipeline(self._copies, self._order, signals)

    def settle(self) -> None:
        """Wait until a load begun by :meth:`load_behind` has ended."""
        if self._pipeline is not None:
            self._pipeline.end()
            signals, self._pipeline = self._pipeline.signals, None
            self._finish_load()
            signals.release()

    def _hook(self) -> None:
        """Load everything before an optimizer step, and gradients before a backward pass."""
        self._has_hooks = True
        register_optimizer_step_pre_hook(lambda *_: self.settle())
        original = torch.autograd.backward

        @functools.wraps(original)
        def backward(*args: Any, **kwargs: Any) -> Any:
            if self._pipeline is not None:
                self._pipeline.before_backward()
            return original(*args, **kwargs)

        torch.autograd.backward = backward

    def _finish_load(self) -> None:
        self._synchronize()
        for item in self._copies.values():
            self._spare.setdefault(item.size, []).append(item.copy)
        self._copies = {}

    def _host(self, size: int) -> torch.Tensor:
        """Get host memory of ``size`` bytes, reused from the previous eviction if possible."""
        spare = self._spare.get(size)
        if spare:
            return spare.pop()
        return torch.empty(size, dtype=torch.uint8, pin_memory=self.device.type == "cuda")

    def _synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def _find_obstacle(
    modules: list[Any], tensors: Iterable[torch.Tensor], graphs: list[Any], *, has_peers: bool
) -> str:
    """Say why a training cannot be moved; "" if it can."""
    names = {kind.__name__ for module in modules for kind in type(module).__mro__}
    if names & _FSDP:
        return "it is sharded by FSDP"
    dist = torch.distributed
    if not has_peers and dist.is_available() and dist.is_initialized():
        return "it has a process group"
    if graphs:
        return "it has a CUDA graph"
    kinds = {type(tensor.data).__name__ for tensor in tensors} - {"Tensor"}
    return f"its parameters are {', '.join(sorted(kinds))}" if kinds else ""


def _live(*kinds: Any) -> list[list[Any]]:
    """Return the objects of each kind made by this trial; older ones are frozen (`gc.freeze`)."""
    instances: list[list[Any]] = [[] for _ in kinds]
    for thing in gc.get_objects():
        for kind, group in zip(kinds, instances):  # noqa: B905 - Python 3.8
            if issubclass(type(thing), kind):
                group.append(thing)
    return instances


def peak(device: torch.device) -> int:
    """Return the maximum bytes that the process has had on a GPU; 0 on a CPU, where none count."""
    return int(torch.cuda.max_memory_reserved()) if device.type == "cuda" else 0


def idle_bytes(device: torch.device, size: int, *, trim: bool) -> int:
    """Return the device bytes of a trial that waits with its state of ``size`` bytes there.

    On a GPU PyTorch keeps the memory of intermediates; with ``trim`` it is freed for other trials.
    """
    if device.type != "cuda":
        return size
    if trim:
        torch.cuda.empty_cache()
    return int(torch.cuda.memory_reserved())
