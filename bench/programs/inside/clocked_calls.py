"""Clocks behind calls of a package's own loop."""

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
