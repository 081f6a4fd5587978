"""A framework's training loader over iterated data, read so that each step has its samples on any
number of ranks.

Frameworks give each rank whole batches of a stream, or leave it to the data, and go on in a pass by
reading it from its beginning, or not at all. Here each rank reads the stream and collates its own
samples of each step (`hops_profiler.data.stream`), and goes on by the data's own state.
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
"""Names in a dataset's code that gives each rank a part of the data."""

_LIBRARIES = ("datasets", "torch", "torchdata", "webdataset")
"""Those with code for this that a script may leave unused."""


def is_plain_stream(dataloader: Any) -> bool:
    """Whether its batches follow from its iterated dataset and its batch size, and the dataset is
    not seen to give each rank a part of the data: on several ranks see `StreamLoader.agrees`.
    """
    fits = (
        type(dataloader) is DataLoader
        and isinstance(dataloader.dataset, IterableDataset)
        and dataloader.batch_size is not None
        and not _shares_out(dataloader.dataset)
    )
    if not fits or dataloader.num_workers <= 1:
        return fits
    # Workers end with a smaller step each: more steps than its length tells.
    has_position = importlib.util.find_spec("torchdata") is not None
    return has_position and steps_of(dataloader.dataset, 1, drops=False) is None


def steps_of(dataset: Any, global_batch: int, drops: bool) -> int | None:
    """Of a pass; None: the data does not know how long it is."""
    try:
        samples = len(dataset)
    except TypeError:
        return None
    return (samples + (0 if drops else global_batch - 1)) // global_batch


def _shares_out(dataset: Any) -> bool:
    if getattr(dataset, "_distributed", None) is not None:  # of Hugging Face's `datasets`
        return True
    texts = []
    for part in [dataset, *getattr(dataset, "pipeline", [])]:  # webdataset's has stages
        code = part if inspect.isroutine(part) else type(part)
        if code.__module__.partition(".")[0] not in _LIBRARIES:
            with contextlib.suppress(OSError, TypeError):
                texts.append(inspect.getsource(code))
        texts.append(getattr(code, "__name__", ""))
    return any(name in text for text in texts for name in _SHARES_OUT)


@dataclass(frozen=True)
class _Even(Share):
    """``count`` parts of each step, whatever its size: `weighted` says what they count."""

    count: int = 1

    def parts(self, size: int) -> list[range]:
        return [part for part, _ in weights_of_parts(self, size, self.count)]


class StreamLoader:
    """``dataloader``'s micro-batches of one rank: `accumulation` of them each step, which has
    ``global_batch`` samples on all ranks. The first pass begins at ``position``.
    """

    def __init__(
        self, dataloader: Any, global_batch: int, share: Share, seed: int, position: Position
    ) -> None:
        self.dataset, self.batch_size = dataloader.dataset, dataloader.batch_size
        self.global_batch, self._drops = global_batch, dataloader.drop_last
        self.accumulation = len(Share(0, share.ranks, share.micro_batch).parts(global_batch))
        self.sampler: Any = None
        """Where Lightning looks for `set_epoch`."""
        self._share = share
        names = [name for name in PASSED_ON if name != "generator"]
        options = {name: getattr(dataloader, name) for name in names}
        self._stream = Stream(self.dataset, global_batch, seed, options)
        self.steps = steps_of(self.dataset, global_batch, self._drops)
        """Of a pass."""
        self._position = position
        self._epoch: int | None = None
        self._next_pass: StreamPass | None = None
        self.current = StreamPass(self, iter(()), position)
        """The pass that is read."""

    def agrees(self) -> bool:
        """Whether the ranks read the same samples, as the first step shows, which is read ahead.
        On all ranks.
        """
        if not several():
            return True
        self._next_pass = self._begin()
        self._next_pass.read_ahead()
        fingerprints = [""] * dist.get_world_size()
        dist.all_gather_object(fingerprints, self._next_pass.fingerprint)
        return len(set(fingerprints)) == 1

    def __len__(self) -> int:
        """Micro-batches of a pass; TypeError where the data does not know."""
        if self.steps is None:
            raise TypeError(f"{type(self.dataset).__name__} has no length")
        return self.steps * self.accumulation

    def __iter__(self) -> StreamPass:
        """The pass of the epoch that was set last, from its beginning in this run."""
        self.current, self._next_pass = self._next_pass or self._begin(), None
        return self.current

    def set_epoch(self, epoch: int) -> None:
        """By the framework, which may count its epochs anew: another one is the data's next."""
        if self._epoch not in (None, epoch):
            self.begin_at(self._position.after_epoch())
        self._epoch = epoch

    def begin_pass(self, number: int) -> bool:
        """Have the next pass be that one, from 0; whether it would have been another."""
        if number == self._position.epoch:
            return False
        return self.begin_at(Position(number, 0, self._position.step))

    def begin_at(self, position: Position) -> bool:
        """Have the next pass begin there; whether it would have begun elsewhere."""
        if position == self._position:
            return False
        self._position, self._next_pass = position, None
        return True

    def _begin(self) -> StreamPass:
        share = self._share
        even = _Even(share.rank, share.ranks, share.micro_batch, self.accumulation)
        return StreamPass(self, self._stream.read(self._position, even), self._position)

    def factor(self, batch: int) -> float:
        """Of the loss of a pass's micro-batch ``batch``, where a step's losses are averaged."""
        step, part = divmod(batch, self.accumulation)
        return self.current.weights_of(step)[part] * self.accumulation

    def weights(self, size: int) -> list[float]:
        """Of a rank's micro-batches of a step of ``size`` samples; none where that is left out."""
        if self._drops and size < self.global_batch:
            return []
        return [weight for _, weight in weights_of_parts(self._share, size, self.accumulation)]


class StreamPass:
    """Yields the micro-batches of a pass, from ``position`` on."""

    def __init__(self, loader: StreamLoader, steps: Iterator[Batches], position: Position) -> None:
        self._loader, self._steps = loader, steps
        self._next_pass: list[Batches] = []
        self._batches: Iterator[Any] = iter(())
        self._positions: deque[tuple[Position, list[float]]] = deque([(position, [])], maxlen=4)

    @property
    def fingerprint(self) -> str:
        return self._next_pass[0].fingerprint if self._next_pass else ""

    def read_ahead(self) -> None:
        """Read the first step, which comes later."""
        self._next_pass = [batches for batches in [next(self._steps, None)] if batches]

    def begin_step(self) -> list[float]:
        """Begin the next step: the weights of its micro-batches; []: the pass is over."""
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
        """After the steps that were begun."""
        return self._positions[-1][0]

    def after(self, steps: int) -> Position | None:
        """Where the data is after ``steps`` steps of the pass, one of the last that were begun."""
        return next((position for position, _ in self._positions if position.offset == steps), None)

    def weights_of(self, step: int) -> list[float]:
        """Of a step of the pass, from 0, one of the last that were begun."""
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
