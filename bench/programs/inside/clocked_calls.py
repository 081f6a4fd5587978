"""Clocks behind calls of a package's own loop, and in its callbacks."""

import importlib

import hand_clock
import torch


def after(owner, method, then):
    """Call ``then`` with the arguments after each call of the outermost ``owner.method``."""
    original, depth = getattr(owner, method), []

    def called(*args, **kwargs):
        depth.append(1)
        try:
            result = original(*args, **kwargs)
        finally:
            depth.pop()
        if not depth:
            then(*args)
        return result

    setattr(owner, method, called)


def before(owner, method, then):
    original = getattr(owner, method)

    def called(*args, **kwargs):
        then()
        return original(*args, **kwargs)

    setattr(owner, method, called)


def each_step(samples, kind=torch.optim.Adam):
    """After each step of the first optimizer of this kind that steps."""
    leading = []

    def stepped(optimizer, *_):
        leading or leading.append(optimizer)
        if leading[0] is optimizer:
            hand_clock.step(samples)

    after(kind, "step", stepped)


def trainer_clock(samples):
    """For transformers' Trainer, and those made of it."""
    from transformers import TrainerCallback

    class Clocks(TrainerCallback):
        def on_step_end(self, *_, **__):
            hand_clock.step(samples)

        def on_evaluate(self, *_, **__):
            hand_clock.pause()

    return Clocks()


def lightning_clock(package, samples):
    """For Lightning, by the name under which a program imports it; ``samples`` of a batch."""

    class Clocks(importlib.import_module(package).Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, number):
            hand_clock.step(samples(batch))

        def on_validation_start(self, *_):
            hand_clock.pause()

    return Clocks()
