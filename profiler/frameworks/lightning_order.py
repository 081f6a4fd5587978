"""Lightning: the order of samples and the samples of a step, kept on another number of ranks.

Lightning resumes within an epoch by a count of batches, reads the epoch's data from its beginning,
and shuffles otherwise on one rank than on several. Here its training loader gets hops' order
(`hops_profiler.data.order`), from the step on at which the checkpoint is, and its count of batches
becomes one of this run's. Looked at: lightning 2.6 (``data_connector.py``, ``fit_loop.py``,
``training_epoch_loop.py``, ``progress.py``).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from hops_profiler import environment
from hops_profiler.data.order import Order, Share
from hops_profiler.data.source import Position
from hops_profiler.frameworks.batch import Note, Split, kept_batch
from hops_profiler.frameworks.loader_order import (
    PASSED_ON,
    EvenSampler,
    batches_per_epoch,
    having,
    is_plain,
    order_of,
    weighted_parts,
)
from hops_profiler.frameworks.own import Own
from torch.utils.data import DataLoader

_CHANGES_BATCH = "GradientAccumulationScheduler"

_DEEPSPEED = "DeepSpeed"


class KeptOrder:
    """While it is entered, ``trainer`` reads its training data in hops' order.

    ``resumed``: the note of the checkpoint that it goes on from; None: it begins. ``note``: of a
    checkpoint that is written now; None: the order is the script's.
    """

    def __init__(self, trainer: Any, own: Own) -> None:
        self._trainer, self._own = trainer, own
        self._stack = contextlib.ExitStack()
        self.resumed: Note | None = None
        self.note: Note | None = None

    def __enter__(self) -> KeptOrder:
        connector = getattr(self._trainer, "_data_connector", None)
        prepare = getattr(connector, "_prepare_dataloader", None)
        if connector is None or prepare is None:  # another release's
            return self

        def prepared(dataloader: Any, shuffle: bool, mode: Any) -> Any:
            if getattr(mode, "name", "") == "TRAINING" and self._fits(dataloader):
                ordered = self._ordered(dataloader)
                if ordered is not None:
                    return ordered
            return prepare(dataloader, shuffle, mode)

        self._stack.enter_context(having(connector, _prepare_dataloader=prepared))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _fits(self, dataloader: Any) -> bool:
        """Whether the loader is a plain one, and what comes of it does not depend on more."""
        trainer = self._trainer
        return (
            is_plain(dataloader)
            and trainer.lightning_module.automatic_optimization
            and len(trainer.optimizers) == 1
            and not any(type(one).__name__ == _CHANGES_BATCH for one in trainer.callbacks)
            and not trainer.overfit_batches
            and trainer.limit_train_batches == 1.0
            and not trainer.reload_dataloaders_every_n_epochs
        )

    def _ordered(self, dataloader: Any) -> DataLoader[Any] | None:
        """``dataloader`` in hops' order; None: an epoch has no step, or its samples no weights."""
        trainer = self._trainer
        now = Split(dataloader.batch_size, trainer.accumulate_grad_batches, trainer.world_size)
        begun = Note.of(self._own.first_note(asdict(Note.now(now))))
        global_batch = kept_batch(now, self.resumed or begun)
        order = order_of(dataloader, global_batch, environment.lightning_seed())
        share = Share(trainer.global_rank, now.ranks, now.micro_batch)
        if not order.steps_per_epoch:
            return None
        factors = _Factors(order, share)
        if not factors.are_one and _DEEPSPEED in type(trainer.strategy).__name__:
            return None  # which weighs losses by itself
        self.note = Note(global_batch, environment.learning_rate(), factors.accumulation)
        trainer.accumulate_grad_batches = factors.accumulation
        position = Position(trainer.current_epoch)
        if self.resumed is not None:
            position = self._position(order, share, self.resumed, factors.accumulation)
        if not factors.are_one:
            self._weigh(factors)
        options = {name: getattr(dataloader, name) for name in PASSED_ON}
        return DataLoader(
            dataloader.dataset,
            batch_sampler=_EpochSampler(order, share, position),
            **options,
        )

    def _weigh(self, factors: _Factors) -> None:
        module, loop = self._trainer.lightning_module, self._trainer.fit_loop.epoch_loop
        backward = module.backward

        def weighted(loss: Any, *args: Any, **kwargs: Any) -> None:
            backward(loss * factors.of(loop.batch_idx), *args, **kwargs)

        self._stack.enter_context(having(module, backward=weighted))

    def _position(self, order: Order, share: Share, note: Note, accumulation: int) -> Position:
        """Where the checkpoint is; Lightning's counts of batches are changed to this run's."""
        progress = self._trainer.fit_loop.epoch_loop.batch_progress
        done = progress.current.ready // note.accumulation  # of a broken step nothing is saved
        at_end = progress.is_last_batch or done >= order.steps_per_epoch
        batches = batches_per_epoch(order, share) if at_end else done * accumulation
        shift = batches - progress.current.ready
        for count in (progress.current, progress.total):
            for name in ("ready", "started", "processed", "completed"):
                setattr(count, name, getattr(count, name) + shift)
        epoch = self._trainer.current_epoch
        # Lightning counts the epoch once it has begun to read.
        return Position(epoch + 1) if at_end else Position(epoch, done)


class _Factors:
    """Of a rank's losses, which Lightning divides by the micro-batches of a whole step."""

    def __init__(self, order: Order, share: Share) -> None:
        self._order, self._share = order, share
        self._whole, self._last = (
            [weight for _, weight in weighted_parts(order, share, step)]
            for step in (0, order.steps_per_epoch - 1)
        )
        self.accumulation = len(self._whole)

    @property
    def are_one(self) -> bool:
        """On all ranks."""
        return all(
            math.isclose(weight * self.accumulation, 1.0, rel_tol=1e-9)
            for rank in range(self._share.ranks)
            for step in (0, self._order.steps_per_epoch - 1)
            for _, weight in weighted_parts(
                self._order, Share(rank, self._share.ranks, self._share.micro_batch), step
            )
        )

    def of(self, batch: int) -> float:
        """For the micro-batch of that number in an epoch."""
        step, part = divmod(batch, self.accumulation)
        last = step == self._order.steps_per_epoch - 1
        return (self._last if last else self._whole)[part] * self.accumulation


class _EpochSampler:
    """Yields the batches of one rank from ``position`` on, and of each later epoch all."""

    def __init__(self, order: Order, share: Share, position: Position) -> None:
        self._order, self._share, self._position = order, share, position
        self.sampler = self
        """Where Lightning looks for `set_epoch`."""

    def set_epoch(self, epoch: int) -> None:
        if epoch != self._position.epoch:
            self._position = Position(epoch)

    def __len__(self) -> int:
        """Of a whole epoch: Lightning counts from where it is."""
        return batches_per_epoch(self._order, self._share)

    def __iter__(self) -> Iterator[list[Any]]:
        sampler = EvenSampler(self._order)
        sampler.begin(self._position, self._share)
        return iter(sampler)
