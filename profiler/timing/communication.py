"""Reads communication times from DistributedDataParallel, which times its own all-reduces."""

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

MAX_ALL_REDUCES = 64
"""Number of most recent all-reduces that are remembered."""

MAX_RANKS = 64
"""Maximum number of ranks that exchange times; more would burden their shared store."""

ALL_REDUCE_INTERVAL = 7
"""On CPUs, the model times every seventh iteration after the first ten. The interval is prime
because rollouts and the like come at round ones. GPUs keep PyTorch's interval of 100, since timing
has to wait for the GPU."""

STORE_TIMEOUT = timedelta(seconds=5)


class CommunicationMeter:
    """Follows the data-parallel models of this process without keeping them alive.

    A single rank cannot tell waiting from traffic: its all-reduce begins when this rank is ready,
    and ends when the last rank was ready and the bytes have been sent. Therefore the ranks tell
    each other when they were ready, through their rendezvous store and in the background.
    ``seconds`` is the mean duration of this rank's all-reduces, from the start of the first bucket
    to the end of the last one; ``wait`` is the part of it before the last rank was ready. Both are
    None if unknown. ``has_model`` is True if there was a data-parallel model, so that both values
    will become known.
    """

    def __init__(self) -> None:
        self.seconds: float | None = None
        self.wait: float | None = None
        self.has_model = False
        self._models: list[weakref.ref[Any]] = []
        # By PyTorch's number of the iteration: begin and end in seconds.
        self._all_reduces: dict[int, tuple[float, float]] = {}
        self._store: Any = None

    def attach(self) -> None:
        original = DistributedDataParallel.__init__

        @functools.wraps(original)
        def init(model: Any, *args: Any, **kwargs: Any) -> None:
            original(model, *args, **kwargs)
            self._models = [ref for ref in self._models if ref() is not None]
            self._models.append(weakref.ref(model))
            self.has_model = True
            with suppress(Exception):  # a private interface, present in PyTorch 2.1 to 2.13
                if model.device_type == "cpu":
                    model._set_ddp_runtime_logging_sample_rate(ALL_REDUCE_INTERVAL)

        DistributedDataParallel.__init__ = init  # type: ignore[assignment, method-assign]

    def forget(self) -> None:
        """Drop all state, in a forked process."""
        self.seconds = self.wait = None
        self._models, self._all_reduces, self._store = [], {}, None

    def read(self) -> bool:
        """Read the model's last times, which takes 0.1 ms. False if there is no such model.

        Reads only the first of several models, as their all-reduces have no common numbering.
        """
        alive = [model for model in (ref() for ref in self._models) if model is not None]
        if not alive:
            return False
        with suppress(Exception):
            data, all_reduces = alive[0]._get_ddp_logging_data(), self._all_reduces
            begin, end = data["backward_comm_time_start"], data["backward_comm_time_end"]
            if 0 < begin <= end and data["iteration"] > 2:  # the first two set up connections
                all_reduces[int(data["iteration"])] = begin / 1e9, end / 1e9
            if len(all_reduces) > MAX_ALL_REDUCES:
                del all_reduces[min(all_reduces)]
            times = [end - begin for begin, end in all_reduces.values()]
            if times:
                self.seconds = sum(times) / len(times)
        return True

    def exchange(self) -> None:
        """Exchange times with the other ranks. May wait for the network."""
        all_reduces = dict(self._all_reduces)
        with suppress(Exception):  # the process group or its store is gone
            rank, world = dist.get_rank(), dist.get_world_size()
            if not all_reduces or not 1 < world <= MAX_RANKS:
                return
            if self._store is None:
                self._store = open_store()
            begins = {str(number): begin for number, (begin, _) in all_reduces.items()}
            self._store.set(f"hops_profiler/{rank}", json.dumps(begins))
            peers = []
            for peer in set(range(world)) - {rank}:
                key = f"hops_profiler/{peer}"
                if self._store.check([key]):
                    peers.append(json.loads(self._store.get(key)))
            if len(peers) == world - 1:
                self.wait = _mean_wait(all_reduces, peers)


def open_store() -> Any:
    """Open a separate connection to the ranks' store, so that training never waits for ours."""
    default: Any = dist.distributed_c10d._get_default_store()
    store = default.clone()
    store.set_timeout(STORE_TIMEOUT)
    return store


def _mean_wait(
    all_reduces: Mapping[int, tuple[float, float]], peers: list[dict[str, float]]
) -> float | None:
    """Mean seconds from when this rank is ready until the last one is; None if no all-reduce was
    timed by all ranks.

    Each wait is limited to the duration of its all-reduce, as the clocks of two servers may differ
    by more.
    """
    waits = [
        min(end - begin, max(0.0, max(peer[str(number)] for peer in peers) - begin))
        for number, (begin, end) in all_reduces.items()
        if all(str(number) in peer for peer in peers)
    ]
    return sum(waits) / len(waits) if waits else None
