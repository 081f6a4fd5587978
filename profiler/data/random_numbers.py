"""Separates the random numbers that reading data draws from those of the training."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Iterator

import torch
from torch.utils.data import get_worker_info


@contextlib.contextmanager
def seed_random_numbers(seed: int) -> Iterator[None]:
    """Seed Python's, NumPy's and PyTorch's (CPU) random numbers with ``seed``, from 0 and below
    2^32, inside this context; afterwards they continue as if none had been drawn.
    """
    if get_worker_info() is not None:  # no other random numbers are drawn in this process
        _seed_all(seed)
        yield
        return
    numpy = sys.modules.get("numpy")
    states = random.getstate(), numpy.random.get_state() if numpy else None
    try:
        with torch.random.fork_rng(devices=[]):
            _seed_all(seed)
            yield
    finally:
        random.setstate(states[0])
        if numpy:
            numpy.random.set_state(states[1])


def _seed_all(seed: int) -> None:
    random.seed(seed)
    torch.default_generator.manual_seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy:
        numpy.random.seed(seed)
