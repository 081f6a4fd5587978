"""What ranks want, agreed among all of them: to save, or to leave."""

from __future__ import annotations

import signal
import time
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist

AGREE_SECONDS = 0.25
"""About how often ranks agree: each time waits for the GPUs."""

_MOST_STEPS = 1000


class Asked:
    """Whether ``number``, hops' signal, has come."""

    def __init__(self, number: int) -> None:
        self.now = False
        self._number = number
        signal.signal(number, self._note)

    def listen_no_more(self) -> None:
        """From now on the signal ends the process again."""
        if signal.getsignal(self._number) == self._note:
            signal.signal(self._number, signal.SIG_DFL)

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self.now = True


class Agreement:
    """Asks all ranks at the same steps, which it finds from how long a step takes."""

    def __init__(self) -> None:
        self._steps, self._left = 1, 1
        self._since = time.monotonic()

    def reached(self, *wishes: bool) -> tuple[bool, ...]:
        """What some rank wishes; nothing at a step at which they do not agree."""
        if not several():
            return wishes
        self._left -= 1
        if self._left:
            return (False,) * len(wishes)
        elapsed = time.monotonic() - self._since
        both = torch.tensor([*map(float, wishes), elapsed / self._steps], device=_device())
        dist.all_reduce(both, dist.ReduceOp.MAX)
        *agreed, step = both.tolist()
        self._steps = self._left = max(1, min(_MOST_STEPS, int(AGREE_SECONDS / max(step, 1e-9))))
        self._since = time.monotonic()
        return tuple(wish > 0 for wish in agreed)


def several() -> bool:
    """Whether this process is one of several ranks."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def first() -> bool:
    return not several() or dist.get_rank() == 0


def broadcast(value: Any) -> Any:
    """The first rank's ``value``, on all ranks."""
    if not several():
        return value
    values = [value]
    dist.broadcast_object_list(values)
    return values[0]


def _device() -> torch.device:
    if dist.get_backend() == "nccl":
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")
