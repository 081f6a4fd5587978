"""A loader with which training is the same on any number of GPUs, stopped and resumed anywhere."""

from __future__ import annotations

import contextlib
import functools
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.distributed as dist
from hops_profiler import environment
from hops_profiler.data.kept import keeps_steps
from hops_profiler.data.order import Share
from hops_profiler.data.samples import Samples
from hops_profiler.data.source import Batches, Position, Source
from hops_profiler.data.stream import Stream

_LOADER_OPTIONS = ("batch_size", "sampler", "batch_sampler", "drop_last")
_STATE_FIELDS = ("seed", "global_batch", "samples", "shuffle")


class OptimizerStep:
    """One optimizer step: yields ``(batch, weight)`` for each of this rank's micro-batches.

    ``epoch`` and ``number`` (over all epochs) count from 0; ``samples`` are those of all ranks.
    With ``weight``, the sum of weighted mean losses, with gradients averaged over ranks, is the
    mean over the step's samples. The batches can be drawn only once.
    """

    def __init__(
        self,
        epoch: int,
        number: int,
        batches: Batches,
        ranks: int,
        on_drawn: Callable[[], None],
    ) -> None:
        self.epoch, self.number, self.samples = epoch, number, batches.size
        self._sizes, self._batches, self._ranks = batches.sizes, batches.iterator, ranks
        self._drawn_batches, self._on_drawn = 0, on_drawn
        if not self._sizes:
            on_drawn()

    def __len__(self) -> int:
        """Number of micro-batches of this rank, 0 if other ranks have all the samples."""
        return len(self._sizes)

    def __iter__(self) -> Iterator[tuple[Any, float]]:
        while not self.is_drawn:
            weight = self._sizes[self._drawn_batches] * self._ranks / self.samples
            self._drawn_batches += 1  # even if a sample cannot be read and the loop goes on
            batch = next(self._batches)
            if self.is_drawn:
                self._on_drawn()
            yield batch, weight

    @property
    def is_drawn(self) -> bool:
        """Whether all of this rank's micro-batches have been drawn."""
        return self._drawn_batches == len(self._sizes)

    def no_sync(self, model: Any) -> AbstractContextManager[Any]:
        """Enter this around each backward pass, so that ``model``, a DistributedDataParallel,
        exchanges gradients once a step, with the last micro-batch. Every rank needs one.
        """
        if self.is_drawn or not hasattr(model, "no_sync"):
            return contextlib.nullcontext()
        context: AbstractContextManager[Any] = model.no_sync()
        return context


class ElasticLoader:
    """Loads ``dataset`` in optimizer steps of ``global_batch`` samples, on any number of ranks.

        for step in loader.steps():
            for batch, weight in step:
                (loss(batch).mean() * weight).backward()

    Which samples a step has depends only on ``seed``, epoch and step; every sample comes once per
    epoch. Ranks share each step's samples and compute at most ``micro_batch`` of them at a time
    (None: ``batch=`` of the job's comment, else all at once). With ``shuffle`` False, samples keep
    the data's order. ``sample_seeds`` seeds Python's, NumPy's and PyTorch's random numbers anew
    before each sample is read, so that its augmentation depends only on seed, epoch and sample.
    ``rank`` and ``world_size`` default to those of torch.distributed. ``options`` are DataLoader's.
    If ``dataset`` is iterable, its order is kept. It resumes by its ``state_dict`` if it has one,
    else by reading from the beginning; with ``num_workers`` above 1, by torchdata's
    StatefulDataLoader.

    Raises:
        ValueError: if a count is below 1, the dataset is empty, or the order rules out an option.
        ImportError: if torchdata is missing for an iterable dataset with ``num_workers`` above 1.
    """

    def __init__(
        self,
        dataset: Any,
        global_batch: int,
        micro_batch: int | None = None,
        epochs: int = 1,
        seed: int = 0,
        *,
        shuffle: bool | None = None,
        sample_seeds: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        **options: Any,
    ) -> None:
        micro_batch = micro_batch if micro_batch is not None else environment.batch()
        counts = {"global_batch": global_batch, "epochs": epochs, "micro_batch": micro_batch}
        for name, value in counts.items():
            if name == "micro_batch" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name}={value!r}: give a whole number from 1")
        for name in _LOADER_OPTIONS:
            if name in options:
                raise ValueError(f"{name} is not accepted: global_batch and micro_batch decide")
        if (rank is None) != (world_size is None):
            raise ValueError("rank and world_size: give both, or neither")
        if rank is not None and world_size is not None and not 0 <= rank < world_size:
            raise ValueError(f"rank={rank}: give 0 to world_size - 1, {world_size - 1}")
        self.global_batch, self.micro_batch = global_batch, micro_batch
        self.epochs, self.seed = epochs, int(seed)
        self._place = None if rank is None or world_size is None else (rank, world_size)
        self._source: Source
        if _is_stream(dataset):
            if shuffle:
                raise ValueError("shuffle=True: an iterable dataset has its own order")
            if sample_seeds:
                raise ValueError("sample_seeds=True: an iterable dataset makes samples by itself")
            self._source = Stream(dataset, global_batch, self.seed, options)
        else:
            self._source = Samples(
                dataset, global_batch, self.seed, shuffle is not False, sample_seeds, options
            )
        self._position = Position()
        self._current: OptimizerStep | None = None
        self._iteration = 0

    @property
    def epoch(self) -> int:
        """The epoch of the current step, from 0."""
        return self._current.epoch if self._current else self._position.epoch

    @property
    def step(self) -> int:
        """The current step, counted from 0 over all epochs; before the first, the next one."""
        return self._current.number if self._current else self._position.step

    @property
    def steps_per_epoch(self) -> int | None:
        """Optimizer steps of an epoch; None if the dataset does not know its length."""
        return self._source.steps_per_epoch

    @property
    def total_steps(self) -> int | None:
        """Optimizer steps of all epochs, on any number of ranks, as a schedule needs them."""
        steps = self._source.steps_per_epoch
        return None if steps is None else steps * self.epochs

    @property
    def steps_left(self) -> int | None:
        """Steps after the current one; None if the dataset does not know its length."""
        return None if self.total_steps is None else max(0, self.total_steps - self.step - 1)

    def steps(self) -> Iterator[OptimizerStep]:
        """Yield the remaining steps to the end of the last epoch. A step that was not drawn
        completely comes again when this is called anew.
        """
        self._iteration += 1
        self._current = None
        _in_use[:] = [weakref.ref(self)]
        keeps_steps("ElasticLoader")
        return self._steps(self._iteration)

    def _steps(self, iteration: int) -> Iterator[OptimizerStep]:
        rank, ranks = self._ranks()
        share = Share(rank, ranks, self.micro_batch)
        if rank == 0:
            self._warn_of_uneven_steps(ranks)
        while self._position.epoch < self.epochs:
            epoch = self._position.epoch
            for batches in self._source.read(self._position, share):
                after = self._position.after_step(batches.state)
                on_move = functools.partial(self._move, after, iteration)
                self._current = OptimizerStep(epoch, self._position.step, batches, ranks, on_move)
                yield self._current
                if self._iteration != iteration:
                    raise RuntimeError("the loader has moved since: continue with its new steps()")
                for _ in self._current:  # draw what the loop did not
                    pass
                on_move()
            self._position = self._position.after_epoch()
        _in_use[:] = []

    def _move(self, position: Position, iteration: int) -> None:
        if self._iteration == iteration:
            self._position = position

    def state_dict(self) -> dict[str, Any]:
        """Return where the training is: after the current step if its micro-batches were drawn,
        else before it. The values are plain, and the same on all ranks; the first rank saves them.
        """
        return {
            "seed": self.seed,
            "global_batch": self.global_batch,
            "samples": self._source.samples,
            "shuffle": self._source.shuffle,
            **self._position.as_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where ``state`` was, with any number of ranks; call `steps` afterwards.

        Raises:
            ValueError: if ``state`` has another seed, global batch, order or number of samples.
        """
        now = self.state_dict()
        for name in _STATE_FIELDS:
            if state.get(name) != now[name]:
                raise ValueError(
                    f"{name} is {now[name]!r}, but the state was saved with {state.get(name)!r}:"
                    " steps would have other samples"
                )
        self._position = Position.from_dict(state)
        self._current = None
        self._iteration += 1

    def _ranks(self) -> tuple[int, int]:
        if self._place is not None:
            return self._place
        if dist.is_available() and dist.is_initialized():
            return dist.get_rank(), dist.get_world_size()
        ranks = environment.ranks() or 1
        if ranks > 1:
            raise RuntimeError(
                f"WORLD_SIZE is {ranks}, but torch.distributed has no process group: call"
                " init_process_group() before steps(), or give rank= and world_size="
            )
        return 0, 1

    def _warn_of_uneven_steps(self, ranks: int) -> None:
        sizes = [self.global_batch]
        if self._source.samples is not None:
            sizes = [min(self.global_batch, self._source.samples)]
            sizes.append(self._source.samples % self.global_batch or sizes[0])
        for size in sizes:
            largest, fewest = (
                len(Share(rank, ranks, self.micro_batch).parts(size)) for rank in (0, ranks - 1)
            )
            if largest != fewest:
                sys.stderr.write(
                    f"hops: a step of {size} samples gives some of the {ranks} ranks {largest}"
                    f" micro-batches and others {fewest}: average gradients by"
                    " hops_profiler.average_gradients(model), since DistributedDataParallel would"
                    " wait forever\n"
                )
                return


_in_use: list[weakref.ref[ElasticLoader]] = []


def loader_in_use() -> ElasticLoader | None:
    """Return the loader that the process is iterating over, for the timing plugin."""
    return _in_use[0]() if _in_use else None


def _is_stream(dataset: Any) -> bool:
    """Whether samples can only be iterated over, and not be read by number."""
    if isinstance(dataset, torch.utils.data.IterableDataset):
        return True
    if hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__"):
        return False
    if hasattr(dataset, "__iter__"):
        return True
    raise ValueError(
        f"dataset is a {type(dataset).__name__}: give one with __getitem__ and __len__, or"
        " with __iter__"
    )
