"""Tells the user of a job that was started again from which step its training goes on."""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

_STEPS = ("global_step", "step", "steps", "iteration", "iter_num", "iters", "iter", "epoch")
"""Names by which scripts keep it in a checkpoint; the first that is there counts."""

_told = False


def listen() -> None:
    """Have the first `torch.load` of a checkpoint that has a step write a line; its behaviour does
    not change.
    """
    original = torch.load

    @functools.wraps(original)
    def load(f: Any, *args: Any, **kwargs: Any) -> Any:
        state = original(f, *args, **kwargs)
        found = step_of(state)
        if found:
            tell(*found, source=f)
        return state

    torch.load = torch.serialization.load = load


def step_of(state: Any) -> tuple[str, int] | None:
    """What a checkpoint says of how far it is, such as ("step", 1200); None: nothing."""
    if not isinstance(state, Mapping):
        return None
    for name in _STEPS:
        step = state.get(name)
        if isinstance(step, int) and not isinstance(step, bool) and step > 0:
            return ("epoch" if name == "epoch" else "step"), step
    return None


def tell(unit: str, step: int, source: Any) -> None:
    """``source``: the path, or the open file, that it was read from."""
    global _told  # noqa: PLW0603 - one line a process
    path = getattr(source, "name", source)
    name = f" ({Path(path).name})" if isinstance(path, (str, Path)) else ""
    if not _told:
        _told = True
        sys.stderr.write(f"hops: went on from {unit} {step:,}{name}\n")
