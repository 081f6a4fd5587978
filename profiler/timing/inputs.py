"""The batch size of a loop without a DataLoader: looked for once, in what a model is given."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from hops_profiler.timing.batch import samples_of
from torch.nn.modules.module import register_module_forward_pre_hook


def look_once(found: Callable[[int], None]) -> None:
    """Give ``found`` the length of the first tensor that the next module call gets.

    The hook is gone again before that module runs: a global hook slows all modules down.
    Nothing is done where torch.compile is at work, which would compile everything anew for it.
    """
    if _compiles():
        return

    def hook(_: Any, args: Any) -> None:
        handle.remove()
        with suppress(Exception):  # then nobody knows the batch size
            found(samples_of(list(args)))

    handle = register_module_forward_pre_hook(hook)


def _compiles() -> bool:
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)
    return bool(counters and counters["frames"])
