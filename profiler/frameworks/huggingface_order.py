"""Hugging Face Trainer: keeps the samples of a step on another number of ranks.

Trainer's sampler gives an epoch's order, which depends only on its seed. Accelerate gives each rank
whole batches of it; if they do not divide evenly, it fills up the last ones with samples from the
epoch's beginning. Here the ranks share each step's samples instead, and all samples count equally.
Trainer keeps counting its own steps: the number of its micro-batches changes with the ranks, that
of its steps does not. Written for transformers 5.24 (``trainer.py``, ``trainer_pt_utils.py``) and
accelerate 1.15 (``data_loader.py``).
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import math
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

import torch
from hops_profiler import environment
from hops_profiler.data.kept import keeps_steps
from hops_profiler.data.order import Order, Share
from hops_profiler.data.source import Position
from hops_profiler.frameworks.batch import Note, Split, keep_samples, kept_batch
from hops_profiler.frameworks.loader_order import (
    PASSED_ON,
    batches_per_epoch,
    replace_methods,
    weighted_parts,
)
from hops_profiler.frameworks.stream_order import (
    StreamLoader,
    StreamPass,
    is_plain_stream,
    steps_of,
)
from torch.overrides import TorchFunctionMode
from torch.utils.data import BatchSampler, IterableDataset

_PRIVATE_NAMES = (
    "get_train_dataloader", "get_batch_samples", "_get_num_items_in_batch", "training_step",
    "compute_loss",
)  # fmt: skip

_SAMPLERS = ("SeedableRandomSampler", "SequentialSampler", "LengthGroupedSampler")
"""Samplers whose order does not depend on the number of ranks, or can be made independent of it."""

_DISTRIBUTED_TYPES = ("NO", "MULTI_GPU", "MULTI_CPU", "FSDP")

_NO_LABEL = -100
"""Label of items that Trainer does not count."""


_SKIP = "skip_first_batches"
"""The function that Trainer calls to resume within a pass over its loader."""


def split(trainer: Any) -> Split:
    """Return how Trainer divides a step now."""
    options, ranks = trainer.args, trainer.args.world_size
    batch = trainer._train_batch_size
    if getattr(getattr(trainer, "accelerator", None), "split_batches", False):  # of all ranks
        batch = max(1, batch // ranks)
    return Split(batch, options.gradient_accumulation_steps, ranks)


class KeptSteps:
    """While :meth:`in_use` lasts, ``trainer`` uses the samples per step of ``note``, which is that
    of the checkpoint from which it resumes, or of its first run. ``position`` is that of iterable
    data in the checkpoint; one in the first epoch may be beyond its end. Used on all ranks.
    """

    def __init__(self, trainer: Any, note: Note, position: Position | None = None) -> None:
        self._trainer, self._note, self._position = trainer, note, position or Position()
        self._accumulation = trainer.args.gradient_accumulation_steps
        self._batches: _Batches | StreamLoader | None = None
        self._first_note = note
        self._counts: bool | None = None
        """Whether losses are divided by what Trainer counts; None if not yet known."""
        self._forget()

    def _forget(self) -> None:
        """Reset the state of the current pass and step."""
        self._pass: Any = None
        self._next_step = self._micro_batches = 0
        self._weights: list[float] = []
        self._counts_items = False

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        trainer, module = self._trainer, sys.modules.get("transformers.trainer")
        skip = getattr(module, _SKIP, None)
        if skip is None or not all(
            hasattr(trainer, name) for name in _PRIVATE_NAMES
        ):  # another release of transformers
            self._keep_evenly()
            yield
            return
        self._load, self._fetch = trainer.get_train_dataloader, trainer.get_batch_samples
        self._count, self._train = trainer._get_num_items_in_batch, trainer.training_step
        self._compute = trainer.compute_loss

        def skip_batches(loader: Any, *args: Any, **kwargs: Any) -> Any:
            return loader if isinstance(loader, StreamLoader) else skip(loader, *args, **kwargs)

        methods = replace_methods(
            trainer,
            get_train_dataloader=self._loader,
            get_batch_samples=self._next_batches,
            _get_num_items_in_batch=self._item_count,
            training_step=self._train_micro_batch,
            compute_loss=self._compute_loss,
        )
        with replace_methods(module, **{_SKIP: skip_batches}), methods:
            yield

    def note(self) -> Note:
        """Return the note of a checkpoint that is written now."""
        now = split(self._trainer)
        batch = self._batches.global_batch if self._batches is not None else now.global_batch
        return replace(
            self._first_note, global_batch=batch, learning_rate=environment.learning_rate()
        )

    def position(self) -> Position | None:
        """Return the position in iterable data, likewise; None if Trainer has no such data."""
        return self._pass.position if isinstance(self._pass, StreamPass) else None

    def _loader(self) -> Any:
        """Make the loader; called again if Trainer searches for a batch size that memory holds."""
        trainer = self._trainer
        trainer.args.gradient_accumulation_steps = self._accumulation
        self._forget()
        loader, now = self._load_unshared(), split(trainer)
        global_batch = kept_batch(now, self._note)
        if global_batch != self._note.global_batch:
            self._first_note = Note.now(now)
        share = Share(trainer.args.process_index, now.ranks, now.micro_batch)
        seed = trainer.args.seed if trainer.args.data_seed is None else trainer.args.data_seed
        self._batches = None
        if self._whole_loader is not None:
            stream = StreamLoader(
                loader, global_batch, share, seed, self._begins(loader, global_batch)
            )
            self._batches = stream if stream.agrees() else None
            loader = self._load() if self._batches is None else stream
        elif (sampler := _sampler(trainer, loader)) is not None:
            drops = trainer.args.dataloader_drop_last
            self._batches = _batches(sampler, global_batch, share, seed, drops)
            loader = _with_batches(loader, self._batches) if self._batches is not None else loader
        if self._batches is None:
            return self._load() if self._keep_evenly() else loader
        trainer.args.gradient_accumulation_steps = self._batches.accumulation
        keeps_steps("Trainer")
        return loader

    def _load_unshared(self) -> Any:
        """Return the script's loader; for iterable data, as it is before Accelerate lets the ranks
        share it, also stored as `_whole_loader`.
        """
        trainer, prepare = self._trainer, self._trainer.accelerator.prepare
        self._whole_loader: Any = None

        def prepare_unless_stream(*args: Any, **kwargs: Any) -> Any:
            if len(args) == 1 and _is_stream(trainer, args[0]):
                self._whole_loader = args[0]
                return args[0]
            return prepare(*args, **kwargs)

        with replace_methods(trainer.accelerator, prepare=prepare_unless_stream):
            loader = self._load()
        if loader is not self._whole_loader:
            self._whole_loader = None
        return loader

    def _begins(self, loader: Any, global_batch: int) -> Position:
        """Return where Trainer begins in iterable data: it assumes that its steps are those of
        epochs of the length that the data reports, or of a single epoch.
        """
        position, options = self._position, self._trainer.args
        steps = steps_of(loader.dataset, global_batch, loader.drop_last)
        epochs, offset = divmod(position.offset, steps) if steps else (0, position.offset)
        if epochs:
            position = Position(position.epoch + epochs, offset, position.step)
        if not position.offset:
            return position
        if options.ignore_data_skip:
            return Position(position.epoch, 0, position.step)
        goes_on = position.step % (steps or options.max_steps)
        return position if goes_on else position.after_epoch()

    def _keep_evenly(self) -> bool:
        """Keep samples with Accelerate's batches; return whether these differ from the present."""
        trainer, now = self._trainer, split(self._trainer)
        keeps = keep_samples(now, self._note)
        if keeps != now:
            devices = max(1, trainer.args.n_gpu)  # of this process with DataParallel
            trainer.args.per_device_train_batch_size = max(1, keeps.micro_batch // devices)
            trainer.args.gradient_accumulation_steps = keeps.accumulation
            trainer._train_batch_size = keeps.micro_batch
        return keeps != now

    def _next_batches(self, batches: Any, *args: Any, **kwargs: Any) -> Any:
        """Fetch the micro-batches of the next step."""
        if self._batches is None:
            return self._fetch(batches, *args, **kwargs)
        if isinstance(batches, StreamPass):
            self._pass, self._weights, self._micro_batches = batches, batches.begin_step(), 0
            return self._fetch_counting(batches, *args, **kwargs)
        if isinstance(self._batches, StreamLoader):  # not read through this loader
            return self._fetch(batches, *args, **kwargs)
        if batches is not self._pass:
            skips = self._pass is None and not self._trainer.args.ignore_data_skip
            steps_done = self._trainer.state.global_step if skips else 0
            self._next_step = steps_done % self._batches.order.steps_per_epoch
            self._pass = batches
        self._weights = self._batches.weights(self._next_step)
        self._next_step, self._micro_batches = self._next_step + 1, 0
        return self._fetch_counting(batches, *args, **kwargs)

    def _fetch_counting(self, batches: Any, *args: Any, **kwargs: Any) -> Any:
        self._counts_items = True
        try:
            return self._fetch(batches, *args, **kwargs)
        finally:
            self._counts_items = False

    def _item_count(self, batches: list[Any], *args: Any, **kwargs: Any) -> Any:
        """Count the step's items, by which Trainer divides losses, only where weights are not 0."""
        if self._counts_items:
            batches = [
                batch if weight else _without_labels(batch)
                for batch, weight in zip(batches, self._weights)  # noqa: B905 - Python 3.8
            ]
        return self._count(batches, *args, **kwargs)

    def _train_micro_batch(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Run a micro-batch's forward and backward pass with its weight."""
        items = args[0] if args else kwargs.get("num_items_in_batch")
        backward = self._trainer.accelerator.backward
        # Lazy, since the loss must be computed first.
        factor = functools.lru_cache(maxsize=1)(lambda: self._factor(items))

        def backward_weighted(loss: Any, **options: Any) -> None:
            backward(loss if factor() == 1.0 else loss * factor(), **options)

        with replace_methods(self._trainer.accelerator, backward=backward_weighted):
            loss = self._train(model, inputs, *args, **kwargs)
        return loss if factor() == 1.0 else loss * factor()

    def _compute_loss(self, *args: Any, **kwargs: Any) -> Any:
        """Compute a micro-batch's loss; the first one shows whether it uses the step's items."""
        items, options = kwargs.get("num_items_in_batch"), self._trainer.args
        is_compiled = options.torch_compile or hasattr(self._trainer.model, "_orig_mod")
        if (
            self._counts is not None
            or not torch.is_tensor(items)
            or options.n_gpu > 1
            or is_compiled
        ):
            return self._compute(*args, **kwargs)
        with _Uses(items) as uses:
            loss = self._compute(*args, **kwargs)
        self._counts = uses.has_uses
        return loss

    def _factor(self, items: Any) -> float:
        """Return the factor for the next micro-batch's loss as Trainer computes it: a mean divided
        by the number of micro-batches; a sum over what it counts divided by the step's ``items``;
        or a mean that Trainer takes for such a sum.
        """
        trainer, weight = self._trainer, None
        if self._micro_batches < len(self._weights):
            weight = self._weights[self._micro_batches]
            self._micro_batches += 1
        is_divided = getattr(trainer, "loss_is_scaled_for_ga", None)
        if is_divided is None:
            counts = trainer.model_accepts_loss_kwargs and items is not None
            is_divided = counts or trainer.compute_loss_func is not None
            if is_divided and self._counts is False:
                mean_weight = 1 / trainer.current_gradient_accumulation_steps
                return (mean_weight if weight is None else weight) * self._scale_of_means()
        if weight is None:
            return 1.0
        if not weight:
            return 0.0
        if not is_divided:
            factor = weight * len(self._weights)
        elif trainer.args.average_tokens_across_devices or trainer.args.world_size == 1:
            factor = 1.0
        else:  # the items are those of this rank
            factor = sum(self._weights)
        return 1.0 if math.isclose(factor, 1.0, rel_tol=1e-9) else factor

    def _scale_of_means(self) -> float:
        """Return how Trainer scales mean losses that it takes for sums, as with a custom
        ``compute_loss`` without `num_items_in_batch`: it adds up those of a step's micro-batches,
        and its own `compute_loss` also those of the ranks. The scale of the first run is kept.
        """
        trainer, scale = self._trainer, float(self._first_note.accumulation)
        compute = inspect.unwrap(type(trainer).compute_loss)
        calls_base = "super" in getattr(getattr(compute, "__code__", None), "co_names", ())
        is_base = compute.__module__ == "transformers.trainer"
        if trainer.args.average_tokens_across_devices and (is_base or calls_base):
            scale *= self._first_note.ranks / trainer.args.world_size
        return scale


class _Uses(TorchFunctionMode):
    """Detects whether an operation uses ``tensor`` other than passing it on."""

    def __init__(self, tensor: torch.Tensor) -> None:
        super().__init__()
        self._copies, self.has_uses = [tensor], False

    def __torch_function__(
        self, function: Any, _types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        operands = [*args, *(kwargs or {}).values()]
        if any(operand is copy for operand in operands for copy in self._copies):
            name = getattr(function, "__name__", "")
            if name == "to":
                self._copies.append(result)
            else:
                self.has_uses = self.has_uses or name != "__get__"  # reading an attribute
        return result


def _without_labels(batch: Any) -> Any:
    if not isinstance(batch, Mapping):
        return batch
    names = [name for name in ("labels", "shift_labels") if name in batch]
    return {**batch, **{name: torch.full_like(batch[name], _NO_LABEL) for name in names}}


def _is_stream(trainer: Any, loader: Any) -> bool:
    """Whether ``loader`` has iterable data that hops can read in its way."""
    accelerator = trainer.accelerator
    return (
        is_plain_stream(loader)
        and loader.batch_size == trainer._train_batch_size
        and getattr(accelerator.distributed_type, "value", "") in _DISTRIBUTED_TYPES
        and getattr(accelerator, "parallelism_config", None) is None
        and not accelerator.use_stateful_dataloader
    )


def _sampler(trainer: Any, loader: Any) -> Any:
    """Return the sampler of a loader that Accelerate has prepared; None if it is not known."""
    accelerator = trainer.accelerator
    kind = getattr(accelerator.distributed_type, "value", "")
    batches = getattr(loader, "batch_sampler", None)
    splits_batches = getattr(batches, "split_batches", False)
    batches = getattr(batches, "batch_sampler", batches)  # nested if there are several ranks
    sampler: Any = getattr(batches, "sampler", None)
    fits = (
        type(batches) is BatchSampler
        and batches.batch_size == trainer._train_batch_size  # else the script has its own loader
        and hasattr(loader, "synchronized_generator")  # else it is not Accelerate's
        and not splits_batches
        and kind in _DISTRIBUTED_TYPES
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
    """Make a rank's batches; None if an epoch has no step."""
    samples = len(sampler) - (len(sampler) % global_batch if drop_last else 0)
    if not samples:
        return None
    if type(sampler).__name__ == "LengthGroupedSampler":
        sampler.batch_size = global_batch
        sampler = _SeededSampler(sampler, seed)
    return _Batches(sampler, Order(samples, global_batch, 0, shuffle=False), share)


class _Batches:
    """A rank's micro-batches of an epoch, in ``sampler``'s order."""

    def __init__(self, sampler: Any, order: Order, share: Share) -> None:
        self.sampler, self.order, self._share = sampler, order, share
        self.global_batch = order.global_batch
        self.batch_size, self.drop_last = share.micro_batch, False  # libraries read these
        self.num_processes = share.ranks
        self.accumulation = len(self.weights(0))

    def weights(self, step: int) -> list[float]:
        """Return the weights of a step's micro-batches; 0 if one only exists for other ranks."""
        return [weight for _, weight in weighted_parts(self.order, self._share, step)]

    def __len__(self) -> int:
        return batches_per_epoch(self.order, self._share)

    def __iter__(self) -> Iterator[list[Any]]:
        samples = iter(self.sampler)
        for step in range(self.order.steps_per_epoch):
            ids = list(islice(samples, self.order.size(step)))
            for part, _ in weighted_parts(self.order, self._share, step):
                yield [ids[place] for place in part]


class _SeededSampler:
    """``sampler`` with an order that depends only on the epoch."""

    def __init__(self, sampler: Any, seed: int) -> None:
        self._sampler, self._seed, self._epoch = sampler, seed, 0

    def set_epoch(self, epoch: int) -> None:
        self._epoch = epoch

    def __len__(self) -> int:
        return len(self._sampler)

    def __iter__(self) -> Iterator[Any]:
        self._sampler.generator = torch.Generator().manual_seed(self._seed + self._epoch)
        return iter(self._sampler)


def _with_batches(loader: Any, batches: _Batches) -> Any:
    """Make Accelerate's loader with ``batches``."""
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
