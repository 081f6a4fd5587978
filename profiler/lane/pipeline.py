"""Loads a trial's state layer by layer, in the background, while the trial already runs.

A thread copies storage after storage. The training waits for those that it is about to use:
before each module's forward pass for the module's own parameters and buffers, and before each
function of PyTorch for the tensors given to it, so that a weight used outside its own module, or
saved, is there as well. What is needed first is loaded first, as seen in the load before.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import torch
from hops_profiler.lane.signals import HeldSignals
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode

_METADATA = ("__get__", "__set__", "__delete__")
"""Attributes such as ``.grad`` and ``.shape`` read no element."""


class Moved:
    """A storage that has left, and its copy on the host. ``use``: see :class:`state.Seen`."""

    __slots__ = ("claimed", "copied", "copy", "loaded", "size", "storage", "use", "used")

    def __init__(self, storage: Any, copy: torch.Tensor, use: int) -> None:
        self.storage, self.copy, self.use = storage, copy, use
        self.size = copy.numel()
        self.claimed = self.loaded = self.used = False
        self.copied: Any = None

    def load(self) -> None:
        """Allocate it and copy it back, unless the script has dropped it meanwhile."""
        if _users(self.storage) == 1:
            return
        self.storage.resize_(self.size)
        elements(self.storage).copy_(self.copy, non_blocking=True)


class Pipeline(TorchFunctionMode):
    """One load of ``items``, by the identity of their storages, to be ended by :meth:`end`.

    ``order``: the storages in the order in which they were used in the last load; updated.
    ``held``: signals for which the thread that loads opens the way once everything is there.
    """

    def __init__(self, items: dict[int, Moved], order: dict[int, int], held: HeldSignals) -> None:
        super().__init__()
        self._items = items
        self._order = order
        self.held = held
        self._changed = threading.Condition()
        device = next(iter(items.values())).storage.device
        self._stream: Any = None
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._layers = register_module_forward_pre_hook(self._before_layer)
        rank = {key: (item.use, order.get(key, len(order))) for key, item in items.items()}
        ranked = [items[key] for key in sorted(items, key=lambda key: rank[key])]
        order.clear()
        self.__enter__()  # type: ignore[no-untyped-call]
        threading.Thread(target=self._load, args=(ranked,), daemon=True).start()

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if getattr(function, "__name__", "") not in _METADATA:
            for tensor in _tensors((args, kwargs)):
                self._need_tensor(tensor)
        return function(*args, **(kwargs or {}))

    def before_backward(self) -> None:
        """A backward pass adds to gradients, and may compute forward passes again."""
        with torch._C.DisableTorchFunction():
            for item in self._items.values():
                if item.use < 2:
                    self._need(None, item)

    def end(self) -> None:
        """Wait for all that is left, and stop looking."""
        with torch._C.DisableTorchFunction():
            for item in self._items.values():
                self._need(None, item)
        self._layers.remove()
        self._items = {}
        if torch.overrides._get_current_function_mode() is self:  # type: ignore[no-untyped-call]
            self.__exit__(None, None, None)  # else the script has entered one since: stay, idle

    def _before_layer(self, module: Any, _: Any) -> None:
        with torch._C.DisableTorchFunction():
            for own in (module._parameters, module._buffers):
                for tensor in own.values():
                    if tensor is not None:
                        self._need_tensor(tensor)

    def _need_tensor(self, tensor: torch.Tensor) -> None:
        if tensor.layout is torch.strided:
            key = tensor.untyped_storage()._cdata
            item = self._items.get(key)
            if item is not None:
                self._need(key, item)

    def _need(self, key: int | None, item: Moved) -> None:
        """Have it there before whatever this thread does next."""
        if key is not None and not item.used:
            item.used = True
            self._order[key] = len(self._order)
        if not item.loaded:
            if self._claim(item):
                self._bring(item)
            else:
                with self._changed:
                    self._changed.wait_for(lambda: item.loaded or not item.claimed)
                if not item.loaded:
                    self._need(None, item)
        if item.copied is not None:
            current = torch.cuda.current_stream()
            current.wait_event(item.copied)
            if item.storage.nbytes():
                elements(item.storage).record_stream(current)

    def _load(self, ranked: list[Moved]) -> None:
        for item in ranked:
            if self._claim(item):
                try:
                    self._bring(item)
                except (MemoryError, RuntimeError):
                    return  # the training meets the same error when it needs this one
        with self._changed:
            self._changed.wait_for(lambda: all(item.loaded for item in ranked))
        if self._stream is not None:
            self._stream.synchronize()
        self.held.open()

    def _claim(self, item: Moved) -> bool:
        with self._changed:
            free = not item.claimed
            item.claimed = True
        return free

    def _bring(self, item: Moved) -> None:
        try:
            if self._stream is None:
                item.load()
            else:
                with torch.cuda.stream(self._stream):
                    item.load()
                    item.copied = self._stream.record_event()
            item.loaded = True
        finally:
            with self._changed:
                item.claimed = item.loaded
                self._changed.notify_all()


def can_pipeline() -> bool:
    """False where code uses tensors unseen: compiled, scripted, or with a mode of its own."""
    if torch._C._len_torch_function_stack():
        return False
    return not torch._dynamo.utils.counters["frames"]


def elements(storage: Any) -> torch.Tensor:
    """The bytes of a storage as a tensor, (nbytes,)."""
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def _users(storage: Any) -> int:
    """How many objects hold it; 1: this module alone. PyTorch before 2.1 does not say: 2."""
    count = getattr(torch._C, "_storage_Use_Count", None)
    return count(storage._cdata) if count else 2


def _tensors(given: Any) -> Iterator[torch.Tensor]:
    if isinstance(given, torch.Tensor):
        yield given
    elif isinstance(given, (list, tuple)):
        for each in given:
            yield from _tensors(each)
    elif isinstance(given, dict):
        for each in given.values():
            yield from _tensors(each)
