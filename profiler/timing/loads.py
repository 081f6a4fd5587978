"""Tells the user of a restarted job from which step its training continues."""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

_STEPS = ("global_step", "step", "steps", "iteration", "iter_num", "iters", "iter", "epoch")
"""Names under which scripts store the step in a checkpoint; the first one present counts."""

_has_written = False


def listen() -> None:
    """Hook `torch.load`: the first load of a checkpoint with a step writes a line to standard
    error. The behaviour of `torch.load` does not change.
    """
    original = torch.load

    @functools.wraps(original)
    def load(f: Any, *args: Any, **kwargs: Any) -> Any:
        state = original(f, *args, **kwargs)
        step = step_of(state)
        if step:
            tell(*step, source=f)
        return state

    torch.load = torch.serialization.load = load


def step_of(state: Any) -> tuple[str, int] | None:
    """Progress that a checkpoint states, such as ("step", 1200); None if it states none."""
    if not isinstance(state, Mapping):
        return None
    for name in _STEPS:
        step = state.get(name)
        if isinstance(step, int) and not isinstance(step, bool) and step > 0:
            return ("epoch" if name == "epoch" else "step"), step
    return None


def tell(unit: str, step: int, source: Any) -> None:
    """Write the line, once per process; ``source`` is the checkpoint's path or open file."""
    global _has_written  # noqa: PLW0603 - one line a process
    path = getattr(source, "name", source)
    name = f" ({Path(path).name})" if isinstance(path, (str, Path)) else ""
    if not _has_written:
        _has_written = True
        sys.stderr.write(f"hops: went on from {unit} {step:,}{name}\n")
