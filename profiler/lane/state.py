"""A trial's state on the device: parameters, buffers, gradients, optimizer state.

It leaves and comes back storage by storage: a storage's bytes are copied to the host, erased and
freed (``resize_(0)``), and later allocated and copied back. Tensors and views keep their identity,
and whatever shares a storage still does. It is the same on a GPU and on the CPU, whose memory
stands for a GPU's.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from hops_profiler.lane.pipeline import Moved, Pipeline, can_pipeline, elements
from hops_profiler.lane.signals import HeldSignals
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils._pytree import tree_flatten

_SHARDED = {"FullyShardedDataParallel", "FSDPModule"}
"""Classes of modules in torch.distributed.fsdp, of its first and its second version."""


@dataclass
class Seen:
    """``storages`` by identity, with when they are used: 0 in forward passes, 1 gradients, 2 in the
    optimizer. ``fixed``: why they cannot be moved, "" if they can. ``plain``: load them at once.
    """

    storages: dict[int, tuple[Any, int]] = field(default_factory=dict)
    fixed: str = ""
    plain: bool = False

    @property
    def size(self) -> int:
        """Bytes of all storages."""
        return sum(storage.nbytes() for storage, _ in self.storages.values())

    def add(self, tensors: Iterable[Any], use: int, device: torch.device) -> None:
        """Add the tensors' storages on this device; not those that PyTorch does not own alone."""
        for tensor in tensors:
            if not isinstance(tensor, torch.Tensor) or tensor.device.type != device.type:
                continue
            if tensor.layout is not torch.strided:
                continue
            storage = tensor.untyped_storage()
            # PyTorch says of all storages on GPUs that they are shared.
            shared = device.type == "cpu" and storage.is_shared()
            if storage.nbytes() and storage.resizable() and not shared:
                self.storages.setdefault(storage._cdata, (storage, use))


class State:
    """The state of this process's training on ``device``; to be used by its main thread.

    ``shared``: it is a rank of a trial whose ranks all pause at once; then it may have a process
    group.
    """

    def __init__(self, device: torch.device, *, shared: bool = False) -> None:
        self.device = device
        self._shared = shared
        self._moved: dict[int, Moved] = {}
        self._spare: dict[int, list[torch.Tensor]] = {}
        self._order: dict[int, int] = {}
        self._pipeline: Pipeline | None = None
        self._plain = False
        self._hooked = False

    def look(self) -> Seen:
        """Find the state among all objects that the script has made; takes milliseconds."""
        seen = Seen()
        modules, optimizers, graphs = _live(
            torch.nn.Module, torch.optim.Optimizer, torch.cuda.CUDAGraph
        )
        used: list[Any] = []
        for module in modules:
            used += [*module._parameters.values(), *module._buffers.values()]
            seen.plain = seen.plain or isinstance(module, torch.jit.ScriptModule)
        for optimizer in optimizers:
            used += [p for group in optimizer.param_groups for p in group["params"]]
        used = [tensor for tensor in used if tensor is not None]
        seen.add(used, 0, self.device)
        seen.add([tensor.grad for tensor in used if tensor.is_leaf], 1, self.device)
        kept = [leaf for o in optimizers for leaf in tree_flatten(dict(o.state))[0]]
        seen.add(kept, 2, self.device)
        seen.fixed = _fixed(modules, used, graphs, shared=self._shared)
        # DistributedDataParallel sends buffers to the other ranks where no mode sees it.
        seen.plain = seen.plain or self._shared
        return seen

    def evict(self, seen: Seen) -> None:
        """Copy what was seen to the host, erase and free it."""
        moved = {}
        for key, (storage, use) in seen.storages.items():
            copy = self._host(storage.nbytes())
            copy.copy_(elements(storage), non_blocking=True)
            moved[key] = Moved(storage, copy, use)
        self._synchronize()
        for storage, _ in seen.storages.values():
            elements(storage).zero_()
            storage.resize_(0)
        self._moved, self._spare, self._plain = moved, {}, seen.plain
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def load(self) -> None:
        """Bring everything back."""
        self.settle()
        for item in self._moved.values():
            item.load()
        self._loaded()

    def load_behind(self, held: HeldSignals | None = None) -> None:
        """Bring everything back while the training goes on; see :mod:`pipeline`.

        ``held``: signals that are to be released once everything is there.
        """
        held = held or HeldSignals()
        if self._plain or not self._moved or not can_pipeline():
            self.load()
            held.release()
            return
        if not self._hooked:
            self._hook()
        self._pipeline = Pipeline(self._moved, self._order, held)

    def settle(self) -> None:
        """Wait until what :meth:`load_behind` began has ended."""
        if self._pipeline is not None:
            self._pipeline.end()
            held, self._pipeline = self._pipeline.held, None
            self._loaded()
            held.release()

    def _hook(self) -> None:
        """Load everything before an optimizer's step, and gradients before a backward pass."""
        self._hooked = True
        register_optimizer_step_pre_hook(lambda *_: self.settle())
        original = torch.autograd.backward

        @functools.wraps(original)
        def backward(*args: Any, **kwargs: Any) -> Any:
            if self._pipeline is not None:
                self._pipeline.before_backward()
            return original(*args, **kwargs)

        torch.autograd.backward = backward

    def _loaded(self) -> None:
        self._synchronize()
        for item in self._moved.values():
            self._spare.setdefault(item.size, []).append(item.copy)
        self._moved = {}

    def _host(self, size: int) -> torch.Tensor:
        """Memory of the host, ``size`` bytes: that of the eviction before, if it had as much."""
        spare = self._spare.get(size)
        if spare:
            return spare.pop()
        return torch.empty(size, dtype=torch.uint8, pin_memory=self.device.type == "cuda")

    def _synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def _fixed(
    modules: list[Any], tensors: Iterable[torch.Tensor], graphs: list[Any], *, shared: bool
) -> str:
    """Why a training cannot be moved, "" if it can."""
    names = {kind.__name__ for module in modules for kind in type(module).__mro__}
    if names & _SHARDED:
        return "it is sharded by FSDP"
    distributed = torch.distributed
    if not shared and distributed.is_available() and distributed.is_initialized():
        return "it has a process group"
    if graphs:
        return "it has a CUDA graph"
    kinds = {type(tensor.data).__name__ for tensor in tensors} - {"Tensor"}
    return f"its parameters are {', '.join(sorted(kinds))}" if kinds else ""


def _live(*kinds: Any) -> list[list[Any]]:
    """The objects of each kind that this trial has made: older ones are frozen (`gc.freeze`)."""
    found: list[list[Any]] = [[] for _ in kinds]
    for thing in gc.get_objects():
        for kind, those in zip(kinds, found):  # noqa: B905 - Python 3.8
            if issubclass(type(thing), kind):
                those.append(thing)
    return found


def peak(device: torch.device) -> int:
    """The most bytes that the process has held on a GPU; 0 on a CPU, which does not count."""
    return int(torch.cuda.max_memory_reserved()) if device.type == "cuda" else 0


def keeps(device: torch.device, size: int, *, trim: bool) -> int:
    """Bytes that a trial keeps on the device while it waits, its state of ``size`` bytes there.

    On a GPU PyTorch keeps what intermediates had; ``trim``: that is given back first, for others.
    """
    if device.type != "cuda":
        return size
    if trim:
        torch.cuda.empty_cache()
    return int(torch.cuda.memory_reserved())
