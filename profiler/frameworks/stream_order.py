"""Reads a framework's training loader over iterable data so that steps have the same samples on any
number of ranks.

Frameworks give each rank whole batches of a stream, or leave that to the data, and resume within a
pass by reading it from its beginning, or not at all. Here each rank reads the stream and collates
its own samples of each step (`hops_profiler.data.stream`), and resumes by the data's state.
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist
from hops_profiler.checkpoint.wishes import several
from hops_profiler.data.order import Share
from hops_profiler.data.source import Batches, Position
from hops_profiler.data.stream import Stream, copy_state
from hops_profiler.frameworks.loader_order import PASSED_ON, weights_of_parts
from torch.utils.data import DataLoader, IterableDataset

_SHARES_OUT = (
    "get_rank", "get_world_size", "RANK", "WORLD_SIZE", "process_index", "num_processes",
    "split_by_node", "split_dataset_by_node",
)  # fmt: skip
"""Names that show that a dataset's code gives each rank a part of the data."""

_LIBRARIES = ("datasets", "torch", "torchdata", "webdataset")
"""Libraries whose code has these names even if a script does not use them."""


def is_plain_stream(dataloader: Any) -> bool:
    """Whether the batches depend only on the iterable dataset and the batch size, and the dataset
    does not seem to give each rank a part of the data; for several ranks see
    `StreamLoader.agrees`.
    """
    fits = (
        type(dataloader) is DataLoader
        and isinstance(dataloader.dataset, IterableDataset)
        and dataloader.batch_size is not None
        and not _shares_out(dataloader.dataset)
    )
    if not fits or dataloader.num_workers <= 1:
        return fits
    # Each worker ends with a smaller step, so there are more steps than by the length.
    has_position = importlib.util.find_spec("torchdata") is not None
    return has_position and steps_of(dataloader.dataset, 1, drops=False) is None


def steps_of(dataset: Any, global_batch: int, drops: bool) -> int | None:
    """Return the steps of a pass; None if the data does not know its length."""
    try:
        samples = len(dataset)
    except TypeError:
        return None
    return (samples + (0 if drops else global_batch - 1)) // global_batch


def _shares_out(dataset: Any) -> bool:
    if getattr(dataset, "_distributed", None) is not None:  # Hugging Face's `datasets`
        return True
    texts = []
    for part in [dataset, *getattr(dataset, "pipeline", [])]:  # webdataset has stages
        code = part if inspect.isroutine(part) else type(part)
        if code.__module__.partition(".")[0] not in _LIBRARIES:
            with contextlib.suppress(OSError, TypeError):
                texts.append(inspect.getsource(code))
        texts.append(getattr(code, "__name__", ""))
    return any(name in text for text in texts for name in _SHARES_OUT)


@dataclass(frozen=True)
class _Even(Share):
    """``count`` parts of each step, whatever its size; `weights_of_parts` has their weights."""

    count: int = 1

    def parts(self, size: int) -> list[range]:
        return [part for part, _ in weights_of_parts(self, size, self.count)]


class StreamLoader:
    """One rank's micro-batches of ``dataloader``: `accumulation` of them in each step of
    ``global_batch`` samples on all ranks. The first pass begins at ``position``.
    """

    def __init__(
        self, dataloader: Any, global_batch: int, share: Share, seed: int, position: Position
    ) -> None:
        self.dataset, self.batch_size = dataloader.dataset, dataloader.batch_size
        self.global_batch, self._drops = global_batch, dataloader.drop_last
        self.accumulation = len(Share(0, share.ranks, share.micro_batch).parts(global_batch))
        self.sampler: Any = None
        """Lightning calls `set_epoch` of this."""
        self._share = share
        names = [name for name in PASSED_ON if name != "generator"]
        options = {name: getattr(dataloader, name) for name in names}
        self._stream = Stream(self.dataset, global_batch, seed, options)
        self.steps = steps_of(self.dataset, global_batch, self._drops)
        """Steps of a pass; None if unknown."""
        self._position = position
        self._epoch: int | None = None
        self._next_pass: StreamPass | None = None
        self.current = StreamPass(self, iter(()), position)
        """The pass that is being read."""

    def agrees(self) -> bool:
        """Whether the ranks read the same samples, judged by the first step, which is read ahead.
        Called on all ranks.
        """
        if not several():
            return True
        self._next_pass = self._begin()
        self._next_pass.read_ahead()
        fingerprints = [""] * dist.get_world_size()
        dist.all_gather_object(fingerprints, self._next_pass.fingerprint)
        return len(set(fingerprints)) == 1

    def __len__(self) -> int:
        """Return the micro-batches of a pass; raises TypeError if the data does not know them."""
        if self.steps is None:
            raise TypeError(f"{type(self.dataset).__name__} has no length")
        return self.steps * self.accumulation

    def __iter__(self) -> StreamPass:
        """Begin the pass of the epoch that was set last, from where it begins in this run."""
        self.current, self._next_pass = self._next_pass or self._begin(), None
        return self.current

    def set_epoch(self, epoch: int) -> None:
        """Note the framework's epoch, which it may count anew; another one is the data's next."""
        if self._epoch not in (None, epoch):
            self.begin_at(self._position.after_epoch())
        self._epoch = epoch

    def begin_pass(self, number: int) -> bool:
        """Make pass ``number`` (from 0) the next; return whether it would have been another."""
        if number == self._position.epoch:
            return False
        return self.begin_at(Position(number, 0, self._position.step))

    def begin_at(self, position: Position) -> bool:
        """Let the next pass begin there; return whether it would have begun elsewhere."""
        if position == self._position:
            return False
        self._position, self._next_pass = position, None
        return True

    def _begin(self) -> StreamPass:
        share = self._share
        even = _Even(share.rank, share.ranks, share.micro_batch, self.accumulation)
        return StreamPass(self, self._stream.read(self._position, even), self._position)

    def factor(self, batch: int) -> float:
        """Return the loss factor of micro-batch ``batch``, if a step's losses are averaged."""
        step, part = divmod(batch, self.accumulation)
        return self.current.weights_of(step)[part] * self.accumulation

    def weights(self, size: int) -> list[float]:
        """Return a rank's weights in a step of ``size`` samples; empty if that step is dropped."""
        if self._drops and size < self.global_batch:
            return []
        return [weight for _, weight in weights_of_parts(self._share, size, self.accumulation)]


class StreamPass:
    """Yields the micro-batches of a pass, starting at ``position``."""

    def __init__(self, loader: StreamLoader, steps: Iterator[Batches], position: Position) -> None:
        self._loader, self._steps = loader, steps
        self._next_pass: list[Batches] = []
        self._batches: Iterator[Any] = iter(())
        self._positions: deque[tuple[Position, list[float]]] = deque([(position, [])], maxlen=4)

    @property
    def fingerprint(self) -> str:
        return self._next_pass[0].fingerprint if self._next_pass else ""

    def read_ahead(self) -> None:
        """Read the first step now; it is yielded later."""
        self._next_pass = [batches for batches in [next(self._steps, None)] if batches]

    def begin_step(self) -> list[float]:
        """Begin the next step; return the weights of its micro-batches, [] if the pass is over."""
        batches = self._next_pass.pop() if self._next_pass else next(self._steps, None)
        weights = self._loader.weights(batches.size) if batches else []
        if batches is None or not weights:
            self._batches = iter(())
            return []
        self._batches = batches.iterator
        self._positions.append((self.position.after_step(copy_state(batches.state)), weights))
        return weights

    @property
    def position(self) -> Position:
        """The position after the steps that were begun."""
        return self._positions[-1][0]

    def after(self, steps: int) -> Position | None:
        """Return the position after ``steps`` steps of the pass, one of the last ones begun."""
        return next((position for position, _ in self._positions if position.offset == steps), None)

    def weights_of(self, step: int) -> list[float]:
        """Return the weights of a step (from 0) of the pass, one of the last ones begun."""
        return next(
            (weights for position, weights in self._positions if position.offset == step + 1), []
        )

    def __iter__(self) -> StreamPass:
        return self

    def __next__(self) -> Any:
        for batch in self._batches:
            return batch
        if not self.begin_step():
            raise StopIteration
        return next(self._batches)
