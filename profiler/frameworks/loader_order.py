"""A framework's training loader in hops' order (`hops_profiler.data.order`)."""

from __future__ import annotations

from typing import Any, cast

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
