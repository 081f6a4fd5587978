"""Assigns keys to optimizers: an optimizer that replaces another inherits its key."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

MAX_OPTIMIZERS = 1024


class OptimizerKeys:
    """A key for each optimizer, from 1 on; no number is used twice.

    An optimizer that is created after another one stepped, and trains exactly the same parameters,
    continues its training: a script may create one in each of its rounds. ``created`` counts the
    optimizers created so far; ``gone`` has the keys of those that no longer exist.
    """

    def __init__(self) -> None:
        self.created = 0
        self.gone: set[int] = set()
        self._births: dict[int, int] = {}  # by id: number of optimizers created until then
        self._keys: dict[int, tuple[Callable[[], Any], int]] = {}  # by id: the optimizer, its key
        # By parameters: the first of them, its optimizer's key, and the number created until then.
        self._trained: dict[Any, tuple[Callable[[], Any], int, int]] = {}
        self._last = 0

    def note(self, optimizer: Any) -> None:
        """Note that ``optimizer`` was created."""
        if len(self._births) >= MAX_OPTIMIZERS:
            self._births.clear()
        self.created += 1
        self._births[id(optimizer)] = self.created

    def key(self, optimizer: Any) -> int:
        """The key of ``optimizer``, which is stepping."""
        known = self._keys.get(id(optimizer))
        if known is not None and known[0]() is optimizer:
            return known[1]
        return self._add(optimizer)

    def _add(self, optimizer: Any) -> int:
        if len(self._keys) >= MAX_OPTIMIZERS:
            self._keys.clear()
            self._trained.clear()
        known_keys = {key for _, key in self._keys.values()}
        self._keys = {i: known for i, known in self._keys.items() if known[0]() is not None}
        self.gone |= known_keys - {key for _, key in self._keys.values()}
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        place = (id(parameters[0]), id(parameters[-1]), len(parameters)) if parameters else None
        first, key, created = self._trained.get(place, (None, 0, 0))
        is_alive = first is not None and first() is parameters[0]
        if not is_alive or self._births.get(id(optimizer), 0) <= created:
            self._last = key = self._last + 1
            if parameters:
                self._trained[place] = weakref.ref(parameters[0]), key, self.created
        self._keys[id(optimizer)] = weakref.ref(optimizer), key
        self.gone.discard(key)
        return key
