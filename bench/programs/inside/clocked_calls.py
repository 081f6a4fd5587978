"""Clocks after calls within a package's loop, and in its callbacks."""

import importlib

import hand_clock
import torch


def call_after(owner, method, callback):
    """Call ``callback`` with the arguments after each outermost call of ``owner.method``."""
    original, depth = getattr(owner, method), []

    def wrapper(*args, **kwargs):
        depth.append(1)
        try:
            result = original(*args, **kwargs)
        finally:
            depth.pop()
        if not depth:
            callback(*args)
        return result

    setattr(owner, method, wrapper)


def call_before(owner, method, callback):
    original = getattr(owner, method)

    def wrapper(*args, **kwargs):
        callback()
        return original(*args, **kwargs)

    setattr(owner, method, wrapper)


def each_step(samples, kind=torch.optim.Adam):
    """Clock each step of whichever optimizer of this kind steps first."""
    first_optimizer = []

    def on_step(optimizer, *_):
        first_optimizer or first_optimizer.append(optimizer)
        if first_optimizer[0] is optimizer:
            hand_clock.step(samples)

    call_after(kind, "step", on_step)


def trainer_clock(samples):
    """Callback for transformers' Trainer and trainers derived from it."""
    from transformers import TrainerCallback

    class Clocks(TrainerCallback):
        def on_step_end(self, *_, **__):
            hand_clock.step(samples)

        def on_evaluate(self, *_, **__):
            hand_clock.pause()

    return Clocks()


def lightning_clock(package, samples):
    """Callback for Lightning, imported as ``package``; ``samples`` counts those of a batch."""

    class Clocks(importlib.import_module(package).Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, number):
            hand_clock.step(samples(batch))

        def on_validation_start(self, *_):
            hand_clock.pause()

    return Clocks()
