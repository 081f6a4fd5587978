"""Lightning: the order of samples and the samples of a step, kept on another number of ranks.

Lightning resumes within an epoch by a count of batches, reads the epoch's data from its beginning,
and shuffles otherwise on one rank than on several. Here its training loader gets hops' order
(`hops_profiler.data.order`), from the step on at which the checkpoint is, and its count of batches
becomes one of this run's. Looked at: lightning 2.6 (``data_connector.py``, ``fit_loop.py``,
``training_epoch_loop.py``, ``progress.py``).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from hops_profiler import environment
from hops_profiler.data.order import Order, Share
from hops_profiler.data.samples import RankSampler
from hops_profiler.data.source import Position
from hops_profiler.frameworks.batch import Note, Split, kept
from hops_profiler.frameworks.loader_order import PASSED_ON, is_plain, shuffles
from hops_profiler.frameworks.own import Own
from torch.utils.data import DataLoader

_CHANGES_BATCH = "GradientAccumulationScheduler"


class KeptOrder:
    """While it is entered, ``trainer`` reads its training data in hops' order.

    ``note``: of the checkpoint that it goes on from; None: it begins. ``split``: of its steps;
    None: the order is the script's.
    """

    def __init__(self, trainer: Any, own: Own) -> None:
        self._trainer, self._own = trainer, own
        self.note: Note | None = None
        self.split: Split | None = None

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

        connector._prepare_dataloader = prepared
        return self

    def __exit__(self, *_: object) -> None:
        connector = getattr(self._trainer, "_data_connector", None)
        if connector is not None:
            vars(connector).pop("_prepare_dataloader", None)

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
        """``dataloader`` in hops' order; None where ranks would wait for each other."""
        trainer, samples = self._trainer, len(dataloader.dataset)
        present = Split(dataloader.batch_size, trainer.accumulate_grad_batches, trainer.world_size)
        begun = Note.of(self._own.first_note(asdict(Note.now(present))))
        split = kept(present, self.note or begun)
        seed = environment.lightning_seed()
        order = Order(samples, split.global_batch, seed, shuffles(dataloader))
        if not all(_is_even(order.size(step), split) for step in (0, order.steps_per_epoch - 1)):
            if self.note is not None:
                sys.stderr.write(
                    f"hops: {split.ranks} ranks cannot share the last step of an epoch evenly:"
                    " Lightning reads the epoch's data from its beginning\n"
                )
            return None
        self.split = split
        trainer.accumulate_grad_batches = split.accumulation
        position = Position(trainer.current_epoch)
        if self.note is not None:
            position = self._resumed(order, self.note, split)
        share = Share(trainer.global_rank, split.ranks, split.micro_batch)
        options = {name: getattr(dataloader, name) for name in PASSED_ON}
        return DataLoader(
            dataloader.dataset,
            batch_sampler=_EpochSampler(order, share, position),
            **options,
        )

    def _resumed(self, order: Order, note: Note, split: Split) -> Position:
        """Where the checkpoint is; Lightning's counts of batches are changed to this run's."""
        progress = self._trainer.fit_loop.epoch_loop.batch_progress
        done = progress.current.ready // note.accumulation  # of a broken step nothing is saved
        if progress.is_last_batch:
            done = order.steps_per_epoch
        shift = done * split.accumulation - progress.current.ready
        for count in (progress.current, progress.total):
            for name in ("ready", "started", "processed", "completed"):
                setattr(count, name, getattr(count, name) + shift)
        epoch = self._trainer.current_epoch
        if done >= order.steps_per_epoch:  # Lightning counts the epoch once it has begun to read
            return Position(epoch + 1)
        return Position(epoch, done)


def _is_even(size: int, split: Split) -> bool:
    """Whether all ranks have as many micro-batches in a step of ``size`` samples: they exchange
    gradients with the last.
    """
    ranks = range(split.ranks)
    return len({len(Share(r, split.ranks, split.micro_batch).parts(size)) for r in ranks}) == 1


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
        return len(self._batches(Position()))

    def __iter__(self) -> Iterator[list[Any]]:
        return iter(self._batches(self._position))

    def _batches(self, position: Position) -> RankSampler:
        sampler = RankSampler(self._order, with_epoch=False)
        sampler.begin(position, self._share)
        return sampler
