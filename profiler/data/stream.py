"""Reads samples that come one after another: an iterable dataset, as of WebDataset, packed text.

Every rank goes through the whole stream, but collates only its own part of each step. So slow work
such as decoding belongs in ``collate_fn``. Each step is read with its own random numbers, so that a
shuffle that uses those of the process is the same on all ranks, and when the step is read again.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import itertools
import pickle
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from hops_profiler.data.order import Share, sample_seed
from hops_profiler.data.random_numbers import seed_random_numbers
from hops_profiler.data.source import Batches, Position, Source
from torch.utils.data import DataLoader, IterableDataset, default_collate, get_worker_info


class Stream(Source):
    """A ``dataset`` with ``__iter__``, as in `ElasticLoader`. Raises ImportError."""

    def __init__(self, dataset: Any, global_batch: int, seed: int, options: dict[str, Any]) -> None:
        options = dict(options)
        collate = options.pop("collate_fn", None) or default_collate
        self._part = _Part(dataset, global_batch, seed, collate)
        self._seed, self._generator = seed, torch.Generator()
        self._workers = options.get("num_workers", 0)
        kind: Any = DataLoader
        if self._workers > 1:  # each worker has a part of the stream, and so its own position
            kind = _stateful_loader()
        options = {"generator": self._generator, **options}
        self._make: Callable[[], Any] = functools.partial(
            kind, self._part, batch_size=None, collate_fn=_identity, **options
        )

    def read(self, position: Position, share: Share) -> Iterator[Batches]:
        self._part.begin(position, share, own_state=self._workers <= 1)
        self._generator.manual_seed(sample_seed(self._seed, position.epoch, position.offset))
        loader = self._make()
        if self._workers > 1 and position.stream is not None:
            loader.load_state_dict(position.stream)
        for size, sizes, batches, state, fingerprint in loader:
            if self._workers > 1:
                state = loader.state_dict()  # noqa: PLW2901
            yield Batches(size, sizes, iter(batches), state, fingerprint)


class _Part(IterableDataset[Any]):
    """One rank's part of each step of a stream, read in the loader's workers if it has any."""

    def __init__(self, dataset: Any, global_batch: int, seed: int, collate: Any) -> None:
        self._dataset, self._global_batch, self._collate = dataset, global_batch, collate
        self._seed = seed
        self._has_state = hasattr(dataset, "load_state_dict") and not _reads_ahead(dataset)
        self._iterator: Iterator[Any] | None = None
        self._epochs_begun = 0
        self._start_state: Any = None
        self._is_within = False
        """Whether a pass has begun and was not read to its end."""
        self.begin(Position(), Share(0, 1, None), own_state=True)

    def begin(self, position: Position, share: Share, *, own_state: bool) -> None:
        """Set the position; with ``own_state``, steps come with the dataset's state after them."""
        self._position, self._share, self._own_state = position, share, own_state
        self._sample_count, self._skip, self._has_ended = 0, 0, False

    def __iter__(self) -> Iterator[tuple[int, list[int], list[Any], Any, str]]:
        if not self._epochs_begun and self._own_state and self._has_state:
            self._start_state = copy_state(self._dataset.state_dict())
        self._enter_epoch()
        if self._own_state and self._position.offset:
            sample_count = self._position.offset * self._global_batch
            self.load_state_dict(self._position.stream or {"done": sample_count, "data": None})
        elif self._is_within and self._start_state is not None:
            self._dataset.load_state_dict(copy_state(self._start_state))
        if self._has_ended:
            return
        self._epochs_begun, self._is_within = self._epochs_begun + 1, True
        self._iterator = None
        for step in range(self._skip // self._global_batch):
            self._read(step)
        is_first = True
        while not self._has_ended:
            samples = self._read(self._sample_count // self._global_batch)
            self._sample_count += len(samples)
            # At its end, a dataset may report the state of its beginning.
            self._has_ended = len(samples) < self._global_batch
            self._is_within = not self._has_ended
            if samples:
                parts = self._share.parts(len(samples))
                batches = [self._collate([samples[place] for place in part]) for part in parts]
                state = self.state_dict() if self._own_state else None
                fingerprint = _fingerprint(samples) if is_first else ""
                yield len(samples), [len(part) for part in parts], batches, state, fingerprint
                is_first = False

    def _read(self, step: int) -> list[Any]:
        """Read the samples of a step of the epoch, or of this worker's part of the epoch."""
        worker = get_worker_info()
        number = step * worker.num_workers + worker.id if worker else step
        with seed_random_numbers(sample_seed(self._seed, self._position.epoch, number)):
            if self._iterator is None:
                self._iterator = iter(self._dataset)
            return list(itertools.islice(self._iterator, self._global_batch))

    def _enter_epoch(self) -> None:
        """Tell the dataset its epoch: some shuffles count passes, as webdataset's `detshuffle`."""
        if hasattr(self._dataset, "set_epoch"):
            self._dataset.set_epoch(self._position.epoch)
        elif not self._has_state:
            while self._epochs_begun < self._position.epoch:
                with seed_random_numbers(sample_seed(self._seed, self._epochs_begun, 0)):
                    next(iter(self._dataset), None)
                self._epochs_begun += 1

    def state_dict(self) -> dict[str, Any]:
        """Return where the stream is, which is the same on all ranks. torchdata's loader also asks
        each worker's copy.
        """
        data = None
        if not self._has_ended and self._has_state:
            data = self._dataset.state_dict()
        return {"done": self._sample_count, "ended": self._has_ended, "data": data}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._sample_count, self._has_ended = state["done"], bool(state.get("ended"))
        self._skip = 0
        if state["data"] is not None and self._has_state:
            self._dataset.load_state_dict(state["data"])
        else:
            self._skip = self._sample_count


def _reads_ahead(dataset: Any) -> bool:
    """Whether the dataset's state omits the samples in a shuffle's buffer, which would be lost, as
    in Hugging Face's ``datasets`` (5.2: ``iterable_dataset.py``,
    ``BufferShuffledExamplesIterable``).
    """
    part = getattr(dataset, "_ex_iterable", None)
    while part is not None:
        if type(part).__name__ == "BufferShuffledExamplesIterable":
            return True
        part = getattr(part, "ex_iterable", None)
    return False


def copy_state(state: Any) -> Any:
    """Copy ``state``, which the data may change; None if it cannot be pickled, so that the data is
    read again.
    """
    try:
        return pickle.loads(pickle.dumps(state))  # noqa: S301 - pickled by this process
    except Exception:  # raised by any object in it
        return None


def _fingerprint(samples: list[Any]) -> str:
    """Hash the values in the first and the last of a step's samples; objects of classes other than
    those below count by their class alone.
    """
    digest = hashlib.blake2b(digest_size=16)

    def add(value: Any) -> None:
        digest.update(type(value).__name__.encode())
        if isinstance(value, Mapping):
            for name in value:
                add(name)
                add(value[name])
        elif isinstance(value, (list, tuple)):
            digest.update(str(len(value)).encode())
            for part in value:
                add(part)
        elif isinstance(value, (str, int, float, complex, type(None))):
            digest.update(repr(value).encode(errors="surrogateescape"))
        elif isinstance(value, (bytes, bytearray)):
            digest.update(value)
        elif hasattr(value, "tolist"):  # a tensor, or NumPy's
            digest.update(repr(value.tolist()).encode())
        elif hasattr(value, "tobytes"):  # a Pillow image
            digest.update(value.tobytes())

    add([len(samples), samples[0], samples[-1]])
    return digest.hexdigest()


def _identity(value: Any) -> Any:
    return value


def _stateful_loader() -> Any:
    try:
        module = importlib.import_module("torchdata.stateful_dataloader")
    except ImportError:
        raise ImportError(
            "num_workers above 1 with an iterable dataset needs torchdata: install it, or use"
            " num_workers=1"
        ) from None
    return vars(module)["StatefulDataLoader"]
