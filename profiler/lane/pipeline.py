"""Loads a trial's state layer by layer in the background while the trial already runs.

A thread copies storage after storage, in the order in which the training used them after the last
load. The training waits for those that it is about to use: before each module's forward pass for
the module's parameters and buffers, and before each PyTorch function for its arguments, so that a
weight that is saved or used outside its module is there as well.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import torch
from hops_profiler.lane.signals import DelayedSignals
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode

_METADATA = ("__get__", "__set__", "__delete__")
"""Attributes such as ``.grad`` and ``.shape`` do not read elements."""


class HostCopy:
    """The host's copy of a ``storage`` that has left the device. ``use``: see
    :class:`state.Inventory`. ``has_loader``: a thread is loading it; ``is_there``: it is loaded;
    ``is_in_order``: the training has used it since the load began. ``event``: the GPU's event at
    the end of the load.
    """

    __slots__ = ("copy", "event", "has_loader", "is_in_order", "is_there", "size", "storage", "use")

    def __init__(self, storage: Any, copy: torch.Tensor, use: int) -> None:
        self.storage, self.copy, self.use = storage, copy, use
        self.size = copy.numel()
        self.has_loader = self.is_there = self.is_in_order = False
        self.event: Any = None

    def load(self) -> None:
        """Allocate the storage and copy it back, unless the script has dropped it since."""
        if _users(self.storage) == 1:
            return
        self.storage.resize_(self.size)
        elements(self.storage).copy_(self.copy, non_blocking=True)


class Pipeline(TorchFunctionMode):
    """One load of ``items``, keyed by the identity of their storages, until :meth:`end` is called.

    ``order``: the order in which storages were used after the last load, which this updates.
    ``signals`` are opened by the loading thread once everything is there.
    """

    def __init__(
        self, items: dict[int, HostCopy], order: dict[int, int], signals: DelayedSignals
    ) -> None:
        super().__init__()
        self._items = items
        self._order = order
        self.signals = signals
        self._condition = threading.Condition()
        device = next(iter(items.values())).storage.device
        self._stream: Any = None
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._layers = register_module_forward_pre_hook(self._before_layer)
        rank = {key: (item.use, order.get(key, len(order))) for key, item in items.items()}
        queue = [items[key] for key in sorted(items, key=lambda key: rank[key])]
        order.clear()
        self.__enter__()  # type: ignore[no-untyped-call]
        threading.Thread(target=self._load, args=(queue,), daemon=True).start()

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if getattr(function, "__name__", "") not in _METADATA:
            for tensor in _tensors((args, kwargs)):
                self._need_tensor(tensor)
        return function(*args, **(kwargs or {}))

    def before_backward(self) -> None:
        """Load parameters and gradients, as a backward pass may also repeat forward passes."""
        with torch._C.DisableTorchFunction():
            for item in self._items.values():
                if item.use < 2:
                    self._need(None, item)

    def end(self) -> None:
        """Wait for the rest, and remove the hooks."""
        with torch._C.DisableTorchFunction():
            for item in self._items.values():
                self._need(None, item)
        self._layers.remove()
        self._items = {}
        if torch.overrides._get_current_function_mode() is self:  # type: ignore[no-untyped-call]
            self.__exit__(None, None, None)  # else the script has entered another mode: stay idle

    def _before_layer(self, module: Any, _: Any) -> None:
        with torch._C.DisableTorchFunction():
            for tensors in (module._parameters, module._buffers):
                for tensor in tensors.values():
                    if tensor is not None:
                        self._need_tensor(tensor)

    def _need_tensor(self, tensor: torch.Tensor) -> None:
        if tensor.layout is torch.strided:
            key = tensor.untyped_storage()._cdata
            item = self._items.get(key)
            if item is not None:
                self._need(key, item)

    def _need(self, key: int | None, item: HostCopy) -> None:
        """Make sure that ``item`` is loaded before this thread goes on."""
        if key is not None and not item.is_in_order:
            item.is_in_order = True
            self._order[key] = len(self._order)
        if not item.is_there:
            if self._claim(item):
                self._bring(item)
            else:
                with self._condition:
                    self._condition.wait_for(lambda: item.is_there or not item.has_loader)
                if not item.is_there:
                    self._need(None, item)
        if item.event is not None:
            current = torch.cuda.current_stream()
            current.wait_event(item.event)
            if item.storage.nbytes():
                elements(item.storage).record_stream(current)

    def _load(self, queue: list[HostCopy]) -> None:
        for item in queue:
            if self._claim(item):
                try:
                    self._bring(item)
                except (MemoryError, RuntimeError):
                    return  # the training gets the same error when it needs this item
        with self._condition:
            self._condition.wait_for(lambda: all(item.is_there for item in queue))
        if self._stream is not None:
            self._stream.synchronize()
        self.signals.open()

    def _claim(self, item: HostCopy) -> bool:
        with self._condition:
            free = not item.has_loader
            item.has_loader = True
        return free

    def _bring(self, item: HostCopy) -> None:
        try:
            if self._stream is None:
                item.load()
            else:
                with torch.cuda.stream(self._stream):
                    item.load()
                    item.event = self._stream.record_event()
            item.is_there = True
        finally:
            with self._condition:
                item.has_loader = item.is_there
                self._condition.notify_all()


def can_pipeline() -> bool:
    """Whether hooks see all uses of tensors; not if code is compiled or runs under another mode."""
    if torch._C._len_torch_function_stack():
        return False
    return not torch._dynamo.utils.counters["frames"]


def elements(storage: Any) -> torch.Tensor:
    """Return the bytes of a storage as a tensor, (nbytes,)."""
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def _users(storage: Any) -> int:
    """Return how many objects refer to ``storage``, 1 if only ours; 2 before PyTorch 2.1."""
    count = getattr(torch._C, "_storage_Use_Count", None)
    return count(storage._cdata) if count else 2


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _tensors(part)
    elif isinstance(value, dict):
        for part in value.values():
            yield from _tensors(part)
