"""Communication time, from those who know: DistributedDataParallel times its own buckets."""

from __future__ import annotations

import functools
import weakref
from contextlib import suppress
from typing import Any

from torch.nn.parallel import DistributedDataParallel


class Communication:
    """Follows the data-parallel models of this process without keeping them alive.

    PyTorch times the first ten iterations and each hundredth by itself, with or without us;
    reading its figures costs nothing and waits for nothing. ``seconds`` is the mean time from the
    first bucket's start to the last one's end, waits included, of all models together; None where
    there is none or it does not say.
    """

    def __init__(self) -> None:
        self._models: list[weakref.ref[Any]] = []
        self.seconds: float | None = None

    def attach(self) -> None:
        original = DistributedDataParallel.__init__

        @functools.wraps(original)
        def init(model: Any, *args: Any, **kwargs: Any) -> None:
            original(model, *args, **kwargs)
            self._models = [ref for ref in self._models if ref() is not None]
            self._models.append(weakref.ref(model))

        DistributedDataParallel.__init__ = init  # type: ignore[assignment, method-assign]

    def forget(self) -> None:
        self._models, self.seconds = [], None

    def read(self) -> None:
        """Ask the models that there are; what one that is gone had said stays."""
        total = None
        for ref in self._models:
            model: Any = ref()
            with suppress(Exception):  # a private interface: of every PyTorch from 2.1 to 2.13
                spent = model._get_ddp_logging_data()["avg_backward_comm_time"]
                total = (total or 0.0) + spent / 1e9
        if total is not None:
            self.seconds = total
