"""Lets ranks agree on what some of them wish: to save, or to end."""

from __future__ import annotations

import signal
import time
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist

AGREE_SECONDS = 0.25
"""About how often ranks agree; each time, they wait for the GPUs."""

_MAX_STEPS = 1000


class SignalFlag:
    """Records whether ``number``, hops' signal, has arrived."""

    def __init__(self, number: int) -> None:
        self.now = False
        self._number = number
        signal.signal(number, self._note)

    def listen_no_more(self) -> None:
        """Restore the signal's default action, which ends the process."""
        if signal.getsignal(self._number) == self._note:
            signal.signal(self._number, signal.SIG_DFL)

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self.now = True


class Agreement:
    """Asks all ranks at the same steps, at intervals that depend on how long a step takes."""

    def __init__(self) -> None:
        self._interval, self._remaining = 1, 1  # steps
        self._begin = time.monotonic()

    def reach(self, *wishes: bool) -> tuple[bool, ...]:
        """Return for each wish whether any rank has it; False at steps at which no rank asks."""
        if not several():
            return wishes
        self._remaining -= 1
        if self._remaining:
            return (False,) * len(wishes)
        step_seconds = (time.monotonic() - self._begin) / self._interval
        values = torch.tensor([*map(float, wishes), step_seconds], device=_device())
        dist.all_reduce(values, dist.ReduceOp.MAX)
        *results, slowest = values.tolist()
        interval = max(1, min(_MAX_STEPS, int(AGREE_SECONDS / max(slowest, 1e-9))))
        self._interval = self._remaining = interval
        self._begin = time.monotonic()
        return tuple(wish > 0 for wish in results)


def several() -> bool:
    """Whether this process is one of several ranks."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def first() -> bool:
    return not several() or dist.get_rank() == 0


def broadcast(value: Any) -> Any:
    """Return the first rank's ``value`` on all ranks."""
    if not several():
        return value
    values = [value]
    dist.broadcast_object_list(values)
    return values[0]


def _device() -> torch.device:
    if dist.get_backend() == "nccl":
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")
