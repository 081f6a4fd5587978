"""Hugging Face Trainer: the samples of a step, kept on another number of ranks.

Trainer's sampler gives an epoch's order, which depends on its seed alone. Accelerate gives each
rank whole batches of it; where they do not come out even, it fills up the last ones with samples
from the epoch's beginning. Here the ranks share each step's samples instead, and each sample counts
as much as the others. Trainer keeps counting its own steps: the number of its micro-batches changes
with the ranks, that of its steps does not. Looked at: transformers 5.24 (``trainer.py``,
``trainer_pt_utils.py``), accelerate 1.15 (``data_loader.py``).
"""

from __future__ import annotations

import contextlib
import importlib
import math
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import torch
from hops_profiler import environment
from hops_profiler.data.order import Order, Share
from hops_profiler.frameworks.batch import Note, Split, kept, kept_batch
from hops_profiler.frameworks.loader_order import (
    PASSED_ON,
    batches_per_epoch,
    having,
    weighted_parts,
)
from torch.utils.data import BatchSampler, IterableDataset

_USED = (
    "get_train_dataloader", "get_batch_samples", "_get_num_items_in_batch", "training_step",
)  # fmt: skip

_SAMPLERS = ("SeedableRandomSampler", "SequentialSampler", "LengthGroupedSampler")
"""Those whose order another number of ranks does not change, or can be kept from changing it."""

_DISTRIBUTED = ("NO", "MULTI_GPU", "MULTI_CPU", "FSDP")

_NO_LABEL = -100
"""Of an item that Trainer does not count."""


def split(trainer: Any) -> Split:
    """How Trainer divides a step now."""
    options = trainer.args
    return Split(trainer._train_batch_size, options.gradient_accumulation_steps, options.world_size)


class KeptSteps:
    """While :meth:`in_use` lasts, ``trainer`` computes the samples a step of ``note``: that of the
    checkpoint from which it goes on, or of its first run. On all ranks.
    """

    def __init__(self, trainer: Any, note: Note) -> None:
        self._trainer, self._note = trainer, note
        self._accumulation = trainer.args.gradient_accumulation_steps
        self._batches: _Batches | None = None
        self._forget()

    def _forget(self) -> None:
        """Which step Trainer is at."""
        self._pass: Any = None
        self._next_step = self._done = 0
        self._weights: list[float] = []
        self._counting = False

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        trainer = self._trainer
        if not all(hasattr(trainer, name) for name in _USED):  # another release
            self._keep_evenly()
            yield
            return
        self._load, self._fetch = trainer.get_train_dataloader, trainer.get_batch_samples
        self._count, self._train = trainer._get_num_items_in_batch, trainer.training_step
        with having(
            trainer,
            get_train_dataloader=self._loader,
            get_batch_samples=self._fetched,
            _get_num_items_in_batch=self._counted,
            training_step=self._trained,
        ):
            yield

    def note(self) -> Note:
        """Of a checkpoint that is written now."""
        if self._batches is None:
            return Note.now(split(self._trainer))
        return Note(self._batches.order.global_batch, environment.learning_rate())

    def _loader(self) -> Any:
        """Called anew where Trainer looks for a batch size that memory holds."""
        trainer = self._trainer
        trainer.args.gradient_accumulation_steps = self._accumulation
        self._forget()
        loader, now = self._load(), split(trainer)
        sampler = _sampler(trainer, loader)
        self._batches = None
        if sampler is not None:
            share = Share(trainer.args.process_index, now.ranks, now.micro_batch)
            seed = trainer.args.seed if trainer.args.data_seed is None else trainer.args.data_seed
            self._batches = _batches(
                sampler, kept_batch(now, self._note), share, seed, trainer.args.dataloader_drop_last
            )
        if self._batches is None:
            return self._load() if self._keep_evenly() else loader
        trainer.args.gradient_accumulation_steps = self._batches.accumulation
        return _of_batches(loader, self._batches)

    def _keep_evenly(self) -> bool:
        """In batches of Accelerate's; whether they differ from the present ones."""
        trainer, now = self._trainer, split(self._trainer)
        keeps = kept(now, self._note)
        if keeps != now:
            devices = max(1, trainer.args.n_gpu)  # of this process, without distribution
            trainer.args.per_device_train_batch_size = max(1, keeps.micro_batch // devices)
            trainer.args.gradient_accumulation_steps = keeps.accumulation
            trainer._train_batch_size = keeps.micro_batch
        return keeps != now

    def _fetched(self, batches: Any, *args: Any, **kwargs: Any) -> Any:
        """The micro-batches of the next step."""
        if self._batches is None:
            return self._fetch(batches, *args, **kwargs)
        if batches is not self._pass:
            skips = self._pass is None and not self._trainer.args.ignore_data_skip
            done = self._trainer.state.global_step if skips else 0
            self._next_step = done % self._batches.order.steps_per_epoch
            self._pass = batches
        self._weights = self._batches.weights(self._next_step)
        self._next_step, self._done = self._next_step + 1, 0
        self._counting = True
        try:
            return self._fetch(batches, *args, **kwargs)
        finally:
            self._counting = False

    def _counted(self, batches: list[Any], *args: Any, **kwargs: Any) -> Any:
        """The step's items by which Trainer divides its losses: of what has a weight."""
        if self._counting:
            batches = [
                batch if weight else _without_labels(batch)
                for batch, weight in zip(batches, self._weights)  # noqa: B905 - Python 3.8
            ]
        return self._count(batches, *args, **kwargs)

    def _trained(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """A micro-batch's forward and backward pass."""
        items = args[0] if args else kwargs.get("num_items_in_batch")
        factor = self._factor(items)
        if factor == 1.0:
            return self._train(model, inputs, *args, **kwargs)
        backward = self._trainer.accelerator.backward

        def weighted(loss: Any, **options: Any) -> None:
            backward(loss * factor, **options)

        with having(self._trainer.accelerator, backward=weighted):
            return self._train(model, inputs, *args, **kwargs) * factor

    def _factor(self, items: Any) -> float:
        """Of the next micro-batch's loss, as Trainer computes it: a mean, divided by the number of
        micro-batches; or a sum over what it counts, divided by the step's ``items``.
        """
        if self._done >= len(self._weights):
            return 1.0
        weight = self._weights[self._done]
        self._done += 1
        trainer = self._trainer
        is_divided = getattr(trainer, "loss_is_scaled_for_ga", None)
        if is_divided is None:
            counts = trainer.model_accepts_loss_kwargs and items is not None
            is_divided = counts or trainer.compute_loss_func is not None
        if not weight:
            return 0.0
        if not is_divided:
            factor = weight * len(self._weights)
        elif trainer.args.average_tokens_across_devices or trainer.args.world_size == 1:
            factor = 1.0
        else:  # the items are the rank's
            factor = sum(self._weights)
        return 1.0 if math.isclose(factor, 1.0, rel_tol=1e-9) else factor


def _without_labels(batch: Any) -> Any:
    if not isinstance(batch, Mapping):
        return batch
    names = [name for name in ("labels", "shift_labels") if name in batch]
    return {**batch, **{name: torch.full_like(batch[name], _NO_LABEL) for name in names}}


def _sampler(trainer: Any, loader: Any) -> Any:
    """The epochs' order of a loader that Accelerate has prepared; None: that is not known."""
    accelerator = trainer.accelerator
    kind = getattr(accelerator.distributed_type, "value", "")
    batches = getattr(loader, "batch_sampler", None)
    shared = getattr(batches, "split_batches", False)
    batches = getattr(batches, "batch_sampler", batches)  # on several ranks
    sampler: Any = getattr(batches, "sampler", None)
    fits = (
        type(batches) is BatchSampler
        and not shared
        and kind in _DISTRIBUTED
        and getattr(accelerator, "parallelism_config", None) is None
        and not getattr(loader, "use_stateful_dataloader", False)
        and not isinstance(loader.dataset, IterableDataset)
        and type(sampler).__name__ in _SAMPLERS
        and not getattr(sampler, "replacement", False)
        and len(sampler) == len(loader.dataset)
    )
    return sampler if fits else None


def _batches(
    sampler: Any, global_batch: int, share: Share, seed: int, drop_last: bool
) -> _Batches | None:
    """None: an epoch has no step."""
    samples = len(sampler) - (len(sampler) % global_batch if drop_last else 0)
    if not samples:
        return None
    if type(sampler).__name__ == "LengthGroupedSampler":
        sampler.batch_size = global_batch
        sampler = _Seeded(sampler, seed)
    return _Batches(sampler, Order(samples, global_batch, 0, shuffle=False), share)


class _Batches:
    """A rank's micro-batches of an epoch, in ``sampler``'s order."""

    def __init__(self, sampler: Any, order: Order, share: Share) -> None:
        self.sampler, self.order, self._share = sampler, order, share
        self.batch_size, self.drop_last = share.micro_batch, False  # where libraries look for them
        self.num_processes = share.ranks
        self.accumulation = len(self.weights(0))

    def weights(self, step: int) -> list[float]:
        """Of each micro-batch of a step of an epoch; 0: it is there for the other ranks' sake."""
        return [weight for _, weight in weighted_parts(self.order, self._share, step)]

    def __len__(self) -> int:
        return batches_per_epoch(self.order, self._share)

    def __iter__(self) -> Iterator[list[Any]]:
        samples = iter(self.sampler)
        for step in range(self.order.steps_per_epoch):
            ids = list(islice(samples, self.order.size(step)))
            for part, _ in weighted_parts(self.order, self._share, step):
                yield [ids[place] for place in part]


class _Seeded:
    """``sampler`` with an order that depends on the epoch alone."""

    def __init__(self, sampler: Any, seed: int) -> None:
        self._sampler, self._seed, self._epoch = sampler, seed, 0

    def set_epoch(self, epoch: int) -> None:
        self._epoch = epoch

    def __len__(self) -> int:
        return len(self._sampler)

    def __iter__(self) -> Iterator[Any]:
        self._sampler.generator = torch.Generator().manual_seed(self._seed + self._epoch)
        return iter(self._sampler)


def _of_batches(loader: Any, batches: _Batches) -> Any:
    """Accelerate's loader, of ``batches``."""
    module = importlib.import_module("accelerate.data_loader")
    return module.DataLoaderShard(
        loader.dataset,
        device=loader.device,
        rng_types=loader.rng_types,
        synchronized_generator=loader.synchronized_generator,
        batch_sampler=batches,
        _non_blocking=loader._non_blocking,
        **{name: getattr(loader, name) for name in PASSED_ON},
    )
