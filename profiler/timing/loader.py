"""Counts the samples a `DataLoader` puts into each batch, and tracks its progress."""

from __future__ import annotations

import functools
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from hops_profiler.timing.batch import is_integer_vector, samples_of
from hops_profiler.timing.handlers import raised_by_one
from torch.utils.data import dataloader

MAX_REQUESTS = 4096
"""Maximum number of remembered batch sizes: those requested from workers ahead of the loop."""


class LoaderSizes:
    """Notes the batch sizes that samplers request, by loader. ``fail`` is called with errors of our
    hooks. ``switches`` is True if the last batch came from a different loader than the one before,
    or from a new pass over the same loader.
    """

    def __init__(self, fail: Callable[[Exception], None]) -> None:
        self._fail = fail
        self.forget()

    def forget(self) -> None:
        """Forget which loader was read last."""
        self._reading: Callable[[], Any] = _no_loader
        self.switches = False
        self._sizes: Any = None

    def attach(self) -> None:
        kind: Any = dataloader._BaseDataLoaderIter
        next_index, reset = kind._next_index, kind._reset

        @functools.wraps(next_index)
        def note_size(loader: Any) -> Any:
            index = next_index(loader)
            try:
                # A sampler may yield any iterable.
                size = len(index) if loader._auto_collation and hasattr(index, "__len__") else 0
                sizes = loader.__dict__.get("_hops_sizes")
                if sizes is None:
                    sizes = loader.__dict__["_hops_sizes"] = deque(maxlen=MAX_REQUESTS)
                sizes.append(size)
            except Exception as error:
                self._fail(error)
            return index

        @functools.wraps(reset)
        def reset_sizes(loader: Any, *args: Any, **kwargs: Any) -> Any:
            loader.__dict__.pop("_hops_sizes", None)
            return reset(loader, *args, **kwargs)

        kind._next_index, kind._reset = note_size, reset_sizes

    def next_size(self, loader: Any, batch: Any) -> int:
        """Samples in ``batch``, which ``loader`` has just yielded; 0 if unknown. What a loader that
        makes no batches yields may be one text or a batch of numbers.
        """
        sizes = loader.__dict__.get("_hops_sizes")
        self.switches = sizes is not self._sizes or not sizes
        if self.switches:
            self._sizes, self._reading = sizes, weakref.ref(loader)
        size: int = sizes.popleft() if sizes else 0
        if size or (not loader._auto_collation and _is_words(batch)):
            return size
        return samples_of(batch)

    @property
    def progress(self) -> tuple[int, int] | None:
        """Batches yielded so far and in total, in the current pass of the loader read last. Batches
        that a resumed pass skips (`skipped_batches` of its sampler) count as yielded.
        """
        loader = self._reading()
        try:
            skip_count = getattr(loader._index_sampler, "skipped_batches", 0)
            return skip_count + loader._num_yielded, len(loader)
        except Exception as error:  # loader gone, length unknown, or the program's sampler raised
            if raised_by_one(error):
                raise
            return None


def _is_words(batch: Any) -> bool:
    """Whether ``batch`` consists of vectors of whole numbers alone."""
    parts = batch if isinstance(batch, (list, tuple)) else [batch]
    return bool(parts) and all(map(is_integer_vector, parts))


def _no_loader() -> None:
    """Stands for a loader that is gone."""
