"""A framework's training loader, read so that each step has its samples on any number of ranks."""

from __future__ import annotations

from typing import Any, cast

from hops_profiler.data.order import Order, Share
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
"""What a loader of hops' order has of the script's."""


def is_plain(dataloader: Any) -> bool:
    """Whether its batches follow from its dataset, its batch size and whether it shuffles."""
    return (
        type(dataloader) is DataLoader
        and not isinstance(dataloader.dataset, IterableDataset)
        and type(dataloader.batch_sampler) is BatchSampler
        and type(dataloader.sampler) in (RandomSampler, SequentialSampler)
        and not getattr(dataloader.sampler, "replacement", False)
        and hasattr(dataloader.dataset, "__len__")
        and len(cast(Any, dataloader.sampler)) == len(dataloader.dataset)
        and not dataloader.drop_last
    )


def shuffles(dataloader: Any) -> bool:
    return type(dataloader.sampler) is RandomSampler


def weighted_parts(order: Order, share: Share, step: int) -> list[tuple[range, float]]:
    """Of a step of an epoch, a rank's micro-batches: their samples' places within the step, and
    the weights that make the ranks' averaged mean losses that of the step's samples.

    Ranks exchange gradients with each last micro-batch, so all have as many. One that would have
    fewer computes a sample once more, with no weight.
    """
    size = order.size(step)
    most = len(Share(0, share.ranks, share.micro_batch).parts(size))
    parts = [(part, len(part) * share.ranks / size) for part in share.parts(size)]
    return parts + [(range(1), 0.0)] * (most - len(parts))


def batches_per_epoch(order: Order, share: Share) -> int:
    """Micro-batches of each rank."""
    last = order.steps_per_epoch - 1
    each, rest = (len(weighted_parts(order, share, step)) for step in (0, last))
    return each * last + rest
