"""Reads a framework's training loader with the same samples per step on any number of ranks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, cast

from hops_profiler.data.order import Order, Share, even_ranges
from hops_profiler.data.samples import RankSampler
from hops_profiler.data.source import Position
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
)

PASSED_ON = (
    "num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn",
    "multiprocessing_context", "generator", "prefetch_factor", "persistent_workers",
)  # fmt: skip
"""Options that a loader in hops' order takes over from the script's loader."""


@contextlib.contextmanager
def replace_methods(owner: Any, **methods: Any) -> Iterator[None]:
    """Replace attributes of ``owner`` by ``methods`` inside this context."""
    before = {name: vars(owner)[name] for name in methods if name in vars(owner)}
    vars(owner).update(methods)
    try:
        yield
    finally:
        for name in methods:
            vars(owner).pop(name, None)
        vars(owner).update(before)


def is_plain(dataloader: Any) -> bool:
    """Whether the batches depend only on dataset, batch size and whether the loader shuffles."""
    return (
        type(dataloader) is DataLoader
        and not isinstance(dataloader.dataset, IterableDataset)
        and type(dataloader.batch_sampler) is BatchSampler
        and type(dataloader.sampler) in (RandomSampler, SequentialSampler)
        and not getattr(dataloader.sampler, "replacement", False)
        and hasattr(dataloader.dataset, "__len__")
        and len(cast(Any, dataloader.sampler)) == len(dataloader.dataset)
    )


def order_of(dataloader: Any, global_batch: int, seed: int) -> Order:
    """Return a plain loader's order; with `drop_last` all steps have ``global_batch`` samples."""
    samples, drops = len(dataloader.dataset), dataloader.drop_last
    return Order(samples, global_batch, seed, shuffles(dataloader), drops)


def shuffles(dataloader: Any) -> bool:
    return type(dataloader.sampler) is RandomSampler


def weighted_parts(order: Order, share: Share, step: int) -> list[tuple[range, float]]:
    """Return a rank's micro-batches of a step: their samples' places within the step, and weights
    with which the average of the ranks' mean losses is the mean over the step's samples.

    Ranks exchange gradients with the last micro-batch, so all have equally many. A rank that would
    have fewer computes a sample once more, with weight 0.
    """
    size = order.size(step)
    return weights_of_parts(share, size, len(Share(0, share.ranks, share.micro_batch).parts(size)))


def weights_of_parts(share: Share, size: int, count: int) -> list[tuple[range, float]]:
    """Like `weighted_parts`, for a step of ``size`` samples in ``count`` micro-batches per rank."""
    part = even_ranges(size, share.ranks)[share.rank]
    places = even_ranges(len(part), min(len(part), count)) if part else []
    parts = [(part[place.start : place.stop], len(place) * share.ranks / size) for place in places]
    return parts + [(range(1), 0.0)] * (count - len(parts))


class EvenSampler(RankSampler):
    """A sampler that gives all ranks equally many micro-batches."""

    def __init__(self, order: Order) -> None:
        super().__init__(order, with_epoch=False)

    def parts(self, step: int) -> list[range]:
        return [part for part, _ in weighted_parts(self._order, self._share, step)]


def batches_per_epoch(order: Order, share: Share) -> int:
    """Return the number of micro-batches of each rank."""
    sampler = EvenSampler(order)
    sampler.begin(Position(), share)
    return len(sampler)
