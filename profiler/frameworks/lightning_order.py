"""Lightning: keeps the order of samples and the samples of a step on another number of ranks.

Lightning resumes within an epoch by a count of batches, reads the epoch's data from its beginning,
and shuffles differently on one rank than on several. Here its training loader gets hops' order
(`hops_profiler.data.order`), starting at the checkpoint's step, and its count of batches is
converted to batches of this run. Iterable data is read by `hops_profiler.frameworks.stream_order`.
Written for lightning 2.6 (``data_connector.py``, ``fit_loop.py``, ``training_epoch_loop.py``,
``progress.py``).
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

from hops_profiler import environment
from hops_profiler.data.kept import keeps_steps
from hops_profiler.data.order import Order, Share
from hops_profiler.data.source import Position
from hops_profiler.frameworks.batch import Note, Split, kept_batch
from hops_profiler.frameworks.loader_order import (
    PASSED_ON,
    EvenSampler,
    batches_per_epoch,
    is_plain,
    order_of,
    replace_methods,
    weighted_parts,
)
from hops_profiler.frameworks.own import OwnCheckpoints
from hops_profiler.frameworks.stream_order import StreamLoader, is_plain_stream
from torch.utils.data import DataLoader, IterableDataset

_CHANGES_BATCH = "GradientAccumulationScheduler"

_DEEPSPEED_NAME = "DeepSpeed"


class KeptOrder:
    """A context in which ``trainer`` reads its training data in hops' order.

    ``resumed_note`` is the note of the checkpoint that the training resumes from, None if the run
    starts from scratch. ``resumed_data`` is the position in iterable data, None if the checkpoint
    does not have it or the data has numbers. ``note`` is for checkpoints that are written now, None
    if the order is the script's.
    """

    def __init__(self, trainer: Any, own_checkpoints: OwnCheckpoints) -> None:
        self._trainer, self._own_checkpoints = trainer, own_checkpoints
        self._stack = contextlib.ExitStack()
        self.resumed_note: Note | None = None
        self.resumed_data: Any = None
        self.note: Note | None = None
        self._requested_data: Any = None
        """What the script returns as training data: a loader, or several."""
        self._sampler: _EpochSampler | None = None
        self._stream: StreamLoader | None = None
        self._is_restored = self._is_reported = self._has_begun = False

    def __enter__(self) -> KeptOrder:
        connector = getattr(self._trainer, "_data_connector", None)
        prepare = getattr(connector, "_prepare_dataloader", None)
        loop: Any = getattr(self._trainer, "fit_loop", None)
        if prepare is None or not hasattr(loop, "_data_source"):  # another release of Lightning
            return self
        request, run = loop.setup_data, loop.run

        def prepare_dataloader(dataloader: Any, shuffle: bool, mode: Any) -> Any:
            if getattr(mode, "name", "") == "TRAINING":
                ordered_loader = self._order_loader(dataloader) if self._fits(dataloader) else None
                if ordered_loader is not None:
                    return ordered_loader
                self._report()
            return prepare(dataloader, shuffle, mode)

        def setup_data() -> None:
            source = loop._data_source
            load = source.dataloader

            def load_and_note() -> Any:
                self._requested_data = load()
                return self._requested_data

            with replace_methods(source, dataloader=load_and_note):
                request()

        def run_from_place() -> None:
            """Run from the checkpoint's place, which has been loaded by now. The data may have been
            set up before, if a script asks for `estimated_stepping_batches`.
            """
            self._is_restored = True
            if self._place():
                iter(loop._data_fetcher)
            run()

        self._stack.enter_context(
            replace_methods(connector, _prepare_dataloader=prepare_dataloader)
        )
        self._stack.enter_context(replace_methods(loop, setup_data=setup_data, run=run_from_place))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _fits(self, dataloader: Any) -> bool:
        """Whether the loader is the only one and plain, and nothing else determines what comes from
        it.
        """
        trainer = self._trainer
        return (
            dataloader is self._requested_data
            and (is_plain(dataloader) or self._fits_as_stream(dataloader))
            and trainer.lightning_module.automatic_optimization
            and not any(type(callback).__name__ == _CHANGES_BATCH for callback in trainer.callbacks)
            and not trainer.overfit_batches
            and trainer.limit_train_batches == 1.0
            and not trainer.reload_dataloaders_every_n_epochs
        )

    def _fits_as_stream(self, dataloader: Any) -> bool:
        trainer = self._trainer
        return (
            is_plain_stream(dataloader)
            and _DEEPSPEED_NAME not in type(trainer.strategy).__name__
            # Otherwise it validates by batches of all epochs, whose number is unknown.
            and trainer.check_val_every_n_epoch is not None
        )

    def _order_loader(self, dataloader: Any) -> Any:
        """Return ``dataloader`` in hops' order; None if an epoch has no step, samples cannot be
        weighted, or ranks read different samples.
        """
        trainer = self._trainer
        now = Split(dataloader.batch_size, trainer.accumulate_grad_batches, trainer.world_size)
        first_note = Note.from_dict(
            self._own_checkpoints.first_note(asdict(Note.now(now)))
        ) or Note.now(now)
        global_batch = kept_batch(now, self.resumed_note or first_note)
        share = Share(trainer.global_rank, now.ranks, now.micro_batch)
        loader: Any
        if isinstance(dataloader.dataset, IterableDataset):
            seed = environment.lightning_seed()
            loader = StreamLoader(dataloader, global_batch, share, seed, self._stream_position())
            if not loader.agrees():
                return None
            loader.sampler = self
            self._stream, accumulation = loader, loader.accumulation
            factor, is_weighed = loader.factor, True
        else:
            order = order_of(dataloader, global_batch, environment.lightning_seed())
            if not order.steps_per_epoch:
                return None
            factors = _Factors(order, share)
            factor, is_weighed = factors.factor_of, not factors.are_one
            if is_weighed and _DEEPSPEED_NAME in type(trainer.strategy).__name__:
                return None  # DeepSpeed weights losses by itself
            accumulation = factors.accumulation
            self._sampler = _EpochSampler(order, share, accumulation)
            options = {name: getattr(dataloader, name) for name in PASSED_ON}
            loader = DataLoader(dataloader.dataset, batch_sampler=self._sampler, **options)
        self.note = Note(global_batch, environment.learning_rate(), accumulation)
        trainer.accumulate_grad_batches = accumulation
        if self._is_restored:
            self._place()
        if first_note.global_batch != global_batch:
            first_note = Note.now(now)
        if first_note.accumulation != accumulation:
            self._schedule(self._batches_beside(first_note, accumulation))
        if is_weighed:
            self._weigh(factor)
        keeps_steps("Lightning")
        return loader

    def _batches_beside(self, first: Note, accumulation: int) -> _Batches:
        """Relate the batches of the training's first run, with note ``first``, to this run's."""
        if self._sampler is not None:
            micro_batch = max(1, first.global_batch // (first.accumulation * first.ranks))
            share = Share(0, first.ranks, micro_batch)
            first_total = batches_per_epoch(self._sampler.order, share)
            return _Batches(first_total, first.accumulation, len(self._sampler), accumulation)
        steps = self._stream.steps if self._stream is not None else None
        totals = (sys.maxsize,) * 2
        if steps is not None:
            totals = (steps * first.accumulation, steps * accumulation)
        return _Batches(totals[0], first.accumulation, totals[1], accumulation)

    def _report(self) -> None:
        """Report once that the order is the script's."""
        if self._trainer.is_global_zero and not self._is_reported:
            self._is_reported = True
            sys.stderr.write(
                "hops: the training data stays in the script's order, which depends on the number"
                " of GPUs: it is not one plain DataLoader, or one of the Trainer's options does"
                " not fit\n"
            )

    def validates(self) -> bool:
        """Whether Lightning validates after the current batch, which it would skip after resuming
        from a checkpoint of that moment.
        """
        if self.note is None or type(self._trainer.val_check_batch) is not int:
            return False  # if it validates by time, ranks may differ
        loop = self._trainer.fit_loop
        return bool(loop.epoch_loop._should_check_val_fx(loop._data_fetcher))

    def _schedule(self, batches: _Batches) -> None:
        """Make Lightning count batches of the first run where it validates or changes the learning
        rate after a number of batches, which it does not count in steps.
        """
        trainer, loop = self._trainer, self._trainer.fit_loop.epoch_loop
        check, update = loop._should_check_val_fx, loop.update_lr_schedulers
        interval, longest = trainer.val_check_interval, sys.maxsize
        if type(interval) is int:  # Lightning compares it with the batches of an epoch
            check_interval = max(1, interval * batches.accumulation // batches.first_accumulation)
            self._stack.enter_context(replace_methods(trainer, val_check_interval=check_interval))
        elif isinstance(interval, float):
            interval = max(1, int(batches.first_total * interval))

        def should_check(*args: Any, **kwargs: Any) -> Any:
            if type(trainer.val_check_batch) is not int:  # it validates by time
                return check(*args, **kwargs)
            before, after = (
                batches.first_run_batches(loop.batch_idx),
                batches.first_run_batches(loop.batch_idx + 1),
            )
            if trainer.check_val_every_n_epoch is None:
                batches_before = trainer.current_epoch * batches.first_total
                before, after = before + batches_before, after + batches_before
            due = before // interval != after // interval
            with replace_methods(trainer, val_check_batch=1 if due else longest):
                return check(*args, **kwargs)

        def update_schedulers(interval: str, *args: Any, **kwargs: Any) -> None:
            after = batches.first_run_batches(loop.batch_idx + 1)
            configs = trainer.lr_scheduler_configs if interval == "step" else []
            with contextlib.ExitStack() as stack:
                for config in configs:
                    due = after % config.frequency == 0
                    stack.enter_context(replace_methods(config, frequency=1 if due else longest))
                update(interval, *args, **kwargs)

        self._stack.enter_context(
            replace_methods(
                loop, _should_check_val_fx=should_check, update_lr_schedulers=update_schedulers
            )
        )

    def _weigh(self, factor: Callable[[int], float]) -> None:
        module, loop = self._trainer.lightning_module, self._trainer.fit_loop.epoch_loop
        backward = module.backward

        def backward_weighted(loss: Any, *args: Any, **kwargs: Any) -> None:
            backward(loss * factor(loop.batch_idx), *args, **kwargs)

        self._stack.enter_context(replace_methods(module, backward=backward_weighted))

    def position(self) -> Position | None:
        """Return the position in iterable data, for a checkpoint that is written now."""
        if self._stream is None:
            return None
        progress = self._trainer.fit_loop.epoch_loop.batch_progress
        return self._stream.current.after(progress.current.ready // self._stream.accumulation)

    def _place(self) -> bool:
        """Move the data to where Lightning's checkpoint is; return whether that is another place.

        Lightning's counts of batches are converted to this run's.
        """
        if self._stream is not None:
            position = self._stream_position()
            if self.resumed_note is not None:
                self._count(self._steps_done(self.resumed_note) * self._stream.accumulation)
            return self._stream.begin_at(position)
        if self._sampler is None:
            return False
        self._sampler.position = self._position(self._sampler)
        return True

    def _steps_done(self, note: Note) -> int:
        """Return the steps done of the checkpoint's epoch; incomplete steps are never saved."""
        progress = self._trainer.fit_loop.epoch_loop.batch_progress
        return int(progress.current.ready // note.accumulation)

    def _position(self, sampler: _EpochSampler) -> Position:
        """Return where the checkpoint is in data with numbers."""
        epoch = self._trainer.current_epoch
        if self.resumed_note is None:
            return Position(epoch)
        order, steps_done = sampler.order, self._steps_done(self.resumed_note)
        progress = self._trainer.fit_loop.epoch_loop.batch_progress
        at_end = progress.is_last_batch or steps_done >= order.steps_per_epoch
        self._count(len(sampler) if at_end else steps_done * sampler.accumulation)
        # Lightning counts the epoch only when it has begun to read.
        return Position(epoch + 1) if at_end else Position(epoch, steps_done)

    def _stream_position(self) -> Position:
        """Return where the checkpoint is in iterable data; before it is loaded, by its note."""
        epoch = self._trainer.current_epoch
        if self.resumed_note is None:
            return Position(epoch)
        if self.resumed_data is None:
            return Position(epoch, self._steps_done(self.resumed_note))
        return Position.from_dict(self.resumed_data)

    def set_epoch(self, epoch: int) -> None:
        """Begin the pass of an epoch of iterable data. Lightning starts reading for it, except in a
        run's first epoch, which may follow one that was at its end in the checkpoint. Then it would
        also go on counting the batches of data of unknown length.
        """
        stream, fit = self._stream, self._trainer.fit_loop
        if stream is None:
            return
        if stream.begin_pass(epoch) and not self._has_begun:
            loop = fit.epoch_loop
            if stream.steps is None:
                loop.batch_progress.reset_on_run()
                loop.scheduler_progress.reset_on_run()
                loop.automatic_optimization.optim_progress.reset_on_run()
                loop.val_loop.batch_progress.total.reset()
                # Lightning increments this before the first batch.
                loop.batch_progress.current.completed -= loop.restarted_on_train_batch_end
            iter(fit._data_fetcher)
        self._has_begun = True

    def _count(self, batches: int) -> None:
        """Make Lightning count ``batches`` of the epoch as done."""
        progress = self._trainer.fit_loop.epoch_loop.batch_progress
        shift = batches - progress.current.ready
        for count in (progress.current, progress.total):
            for name in ("ready", "started", "processed", "completed"):
                setattr(count, name, getattr(count, name) + shift)


class _Factors:
    """Factors for a rank's losses, which Lightning divides by the micro-batches of a full step."""

    def __init__(self, order: Order, share: Share) -> None:
        self._order, self._share = order, share
        self._whole, self._last = (
            [weight for _, weight in weighted_parts(order, share, step)]
            for step in (0, order.steps_per_epoch - 1)
        )
        self.accumulation = len(self._whole)

    @property
    def are_one(self) -> bool:
        """Whether all factors are 1, on all ranks."""
        return all(
            math.isclose(weight * self.accumulation, 1.0, rel_tol=1e-9)
            for rank in range(self._share.ranks)
            for step in (0, self._order.steps_per_epoch - 1)
            for _, weight in weighted_parts(
                self._order, Share(rank, self._share.ranks, self._share.micro_batch), step
            )
        )

    def factor_of(self, batch: int) -> float:
        """Return the factor for the micro-batch with number ``batch`` in an epoch."""
        step, part = divmod(batch, self.accumulation)
        last = step == self._order.steps_per_epoch - 1
        return (self._last if last else self._whole)[part] * self.accumulation


class _Batches:
    """Converts batches of an epoch between this run, which has ``total`` of them and
    ``accumulation`` per step, and the first run (``first_total``, ``first_accumulation``).
    """

    def __init__(
        self, first_total: int, first_accumulation: int, total: int, accumulation: int
    ) -> None:
        self.first_total, self.first_accumulation = first_total, first_accumulation
        self._total, self.accumulation = total, accumulation

    def first_run_batches(self, batches: int) -> int:
        """Return the first run's batches in the complete steps of this run's first ``batches``."""
        if batches >= self._total:  # the last step may have fewer
            return self.first_total
        return batches // self.accumulation * self.first_accumulation


class _EpochSampler:
    """Yields the batches of one rank from ``position`` on, and all batches of later epochs."""

    def __init__(self, order: Order, share: Share, accumulation: int) -> None:
        self.order, self.share, self.accumulation = order, share, accumulation
        self.position = Position()
        self.sampler = self
        """Lightning calls `set_epoch` of this."""

    def set_epoch(self, epoch: int) -> None:
        if epoch != self.position.epoch:
            self.position = Position(epoch)

    def __len__(self) -> int:
        """Return the batches of a whole epoch, as Lightning counts from its place in it."""
        return batches_per_epoch(self.order, self.share)

    def __iter__(self) -> Iterator[list[int]]:
        sampler = EvenSampler(self.order)
        sampler.begin(self.position, self.share)
        return iter(sampler)
