"""Reads samples that have numbers: a map-style dataset."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import torch
from hops_profiler.data.order import Order, Share, sample_seed
from hops_profiler.data.random_numbers import seed_random_numbers
from hops_profiler.data.source import Batches, Position, Source
from torch.utils.data import DataLoader, Dataset

_PLACES_AHEAD = 8192
"""About how many samples' numbers are computed at a time, as a call takes as long for one."""


class Samples(Source):
    """A ``dataset`` with ``__getitem__``, ``__len__``, as in `ElasticLoader`. Raises ValueError."""

    def __init__(
        self,
        dataset: Any,
        global_batch: int,
        seed: int,
        shuffle: bool,
        sample_seeds: bool,
        options: dict[str, Any],
    ) -> None:
        self.samples, self.shuffle = len(dataset), shuffle
        if not self.samples:
            raise ValueError("the dataset has no samples")
        self._order = Order(self.samples, global_batch, seed, shuffle)
        self.steps_per_epoch = self._order.steps_per_epoch
        self._sampler = RankSampler(self._order, with_epoch=sample_seeds)
        self._seed = seed
        self._generator = torch.Generator()
        self._loader: DataLoader[Any] = DataLoader(
            _SeededDataset(dataset, seed) if sample_seeds else dataset,
            batch_sampler=self._sampler,
            # A separate generator, so that later runs draw no more of the training's numbers.
            **{"generator": self._generator, **options},
        )

    def read(self, position: Position, share: Share) -> Iterator[Batches]:
        self._sampler.begin(position, share)
        self._generator.manual_seed(sample_seed(self._seed, position.epoch, position.offset))
        batches = iter(self._loader)
        for step in range(position.offset, self._order.steps_per_epoch):
            size = self._order.size(step)
            parts = share.parts(size)
            yield Batches(size, [len(part) for part in parts], batches)


class RankSampler:
    """Yields the sample numbers of one rank's micro-batches, starting at a step of an epoch."""

    def __init__(self, order: Order, *, with_epoch: bool) -> None:
        self._order, self._with_epoch = order, with_epoch
        self.begin(Position(), Share(0, 1, None))

    def begin(self, position: Position, share: Share) -> None:
        self._position, self._share = position, share

    def parts(self, step: int) -> list[range]:
        """Return the places of the rank's micro-batches within a step of an epoch."""
        return self._share.parts(self._order.size(step))

    def __len__(self) -> int:
        """Number of micro-batches until the end of the epoch."""
        steps = self._order.steps_per_epoch - self._position.offset
        if steps <= 0:
            return 0
        size, last = (len(self.parts(step)) for step in (0, self._order.steps_per_epoch - 1))
        return (steps - 1) * size + last

    def __iter__(self) -> Iterator[list[Any]]:
        order, epoch, stop = self._order, self._position.epoch, self._order.steps_per_epoch
        block_length = max(1, _PLACES_AHEAD * self._share.ranks // order.global_batch)
        for first in range(self._position.offset, stop, block_length):
            parts = [
                range(start + part.start, start + part.stop)
                for step in range(first, min(first + block_length, stop))
                for start in (step * order.global_batch,)
                for part in self.parts(step)
            ]
            places = torch.tensor([place for part in parts for place in part], dtype=torch.int64)
            ids = iter(order.sample_ids(epoch, places).tolist())
            for part in parts:
                batch = list(itertools.islice(ids, len(part)))
                yield [(epoch, sample) for sample in batch] if self._with_epoch else batch


class _SeededDataset(Dataset[Any]):
    """Reads each sample with its own random numbers."""

    def __init__(self, dataset: Any, seed: int) -> None:
        self._dataset, self._seed = dataset, seed

    def __getitem__(self, key: tuple[int, int]) -> Any:
        epoch, sample = key
        with seed_random_numbers(sample_seed(self._seed, epoch, sample)):
            return self._dataset[sample]
