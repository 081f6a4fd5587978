"""Communication times, from DistributedDataParallel, which times its own all-reduces."""

from __future__ import annotations

import functools
import json
import weakref
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

KEPT = 64
"""How many of the newest all-reduces are remembered."""

MOST_RANKS = 64
"""Most ranks that exchange times; more would burden the store that they share."""

OFTEN = 7
"""On CPUs every how many iterations the model times its all-reduce, after the first ten: a prime
number, as rollouts and the like come after round ones. GPUs keep PyTorch's hundred, since
timing has to wait for the GPU."""

PATIENCE = timedelta(seconds=5)


class Communication:
    """Follows the data-parallel models of this process without keeping them alive.

    A single rank cannot distinguish waiting from traffic: its all-reduce begins when it is ready
    and ends when the last rank was and the bytes have been sent. So the ranks exchange, through
    the store of their rendezvous and beside the training, when each was ready. ``seconds`` is the
    mean of this rank's all-reduces, from the first bucket's start to the last one's end; ``wait``
    is the part of it before the last rank was ready. None if unknown. ``heard``: there was a
    data-parallel model, so that they will be known.
    """

    def __init__(self) -> None:
        self.seconds: float | None = None
        self.wait: float | None = None
        self.heard = False
        self._models: list[weakref.ref[Any]] = []
        self._seen: dict[int, tuple[float, float]] = {}
        self._store: Any = None

    def attach(self) -> None:
        original = DistributedDataParallel.__init__

        @functools.wraps(original)
        def init(model: Any, *args: Any, **kwargs: Any) -> None:
            original(model, *args, **kwargs)
            self._models = [ref for ref in self._models if ref() is not None]
            self._models.append(weakref.ref(model))
            self.heard = True
            with suppress(Exception):  # a private interface: of every PyTorch from 2.1 to 2.13
                if model.device_type == "cpu":
                    model._set_ddp_runtime_logging_sample_rate(OFTEN)

        DistributedDataParallel.__init__ = init  # type: ignore[assignment, method-assign]

    def forget(self) -> None:
        """Start empty in a forked process."""
        self.seconds = self.wait = None
        self._models, self._seen, self._store = [], {}, None

    def read(self) -> bool:
        """Read the model's last timing; costs 0.1 ms. False if there is no such model.

        Of several models the first counts: their all-reduces have no common numbering.
        """
        alive = [model for model in (ref() for ref in self._models) if model is not None]
        if not alive:
            return False
        with suppress(Exception):
            told = alive[0]._get_ddp_logging_data()
            begin, end = told["backward_comm_time_start"], told["backward_comm_time_end"]
            if 0 < begin <= end and told["iteration"] > 2:  # the first ones set up connections
                self._seen[int(told["iteration"])] = begin / 1e9, end / 1e9
            if len(self._seen) > KEPT:
                del self._seen[min(self._seen)]
            times = [end - begin for begin, end in self._seen.values()]
            if times:
                self.seconds = sum(times) / len(times)
        return True

    def exchange(self) -> None:
        """Exchange times with the other ranks. May wait for the network."""
        seen = dict(self._seen)
        with suppress(Exception):  # the group, or the store, is gone
            rank, world = dist.get_rank(), dist.get_world_size()
            if not seen or not 1 < world <= MOST_RANKS:
                return
            if self._store is None:
                # A separate connection, so that the training does not wait for ours.
                store: Any = dist.distributed_c10d._get_default_store()
                self._store = store.clone()
                self._store.set_timeout(PATIENCE)
            began = {str(number): begin for number, (begin, _) in seen.items()}
            self._store.set(f"hops_profiler/{rank}", json.dumps(began))
            others = []
            for other in range(world):
                key = f"hops_profiler/{other}"
                if other != rank and self._store.check([key]):
                    others.append(json.loads(self._store.get(key)))
            if len(others) == world - 1:
                self.wait = _mean_wait(seen, others)


def _mean_wait(
    seen: Mapping[int, tuple[float, float]], others: list[dict[str, float]]
) -> float | None:
    """Mean time from when this rank is ready until the last one is; None without common ones.

    At most the all-reduce's own time, since clocks of two servers may differ by more.
    """
    waits = [
        min(end - begin, max(0.0, max(other[str(number)] for other in others) - begin))
        for number, (begin, end) in seen.items()
        if all(str(number) in other for other in others)
    ]
    return sum(waits) / len(waits) if waits else None
