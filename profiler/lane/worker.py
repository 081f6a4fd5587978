"""A worker waits with PyTorch imported, becomes one trial, and waits again at its gate."""

from __future__ import annotations

import functools
import os
import sys
import time
from typing import Any

import torch
from hops_profiler.lane.link import Link
from hops_profiler.lane.settings import OUT_OF_MEMORY
from hops_profiler.lane.signals import DelayedSignals
from hops_profiler.lane.state import State, idle_bytes, peak
from hops_profiler.lane.turnstile import Turnstile
from hops_profiler.launch import script
from hops_profiler.timing import session


def serve(link: Link, turnstile: Turnstile | None = None) -> None:
    """Be a worker until its trial has ended, on the GPU, or on the CPU if there is none.

    ``turnstile`` is that of a trial of several ranks.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    free = 0
    if device.type == "cuda":
        torch.empty(1, device=device)  # creates the context, and draws no random number
        free = torch.cuda.mem_get_info()[0]
    link.send(ready=free)
    start = link.receive()
    if start is None:
        sys.exit(1)
    os.register_at_fork(after_in_child=link.close)
    _write_to(start["log"])
    has_peers = start["ranks"] > 1
    if has_peers and device.type == "cuda":
        _sum_on_one_gpu()
    gate = Gate(link, State(device, has_peers=has_peers), start["iterations"], turnstile)
    session.stop_at(gate)
    if turnstile is not None:
        turnstile.attach()
    os.environ["HOPS_TRIAL"] = str(start["number"])
    try:
        script.run(start["arguments"], module=start["module"])
    except (MemoryError, RuntimeError) as error:
        if not _is_out_of_memory(error):
            raise
        sys.stderr.write(f"hops-lane: out of memory: {error}\n")
        sys.exit(OUT_OF_MEMORY)
    sys.exit(0)


def _sum_on_one_gpu() -> None:
    """Let Gloo sum the gradients, since NCCL refuses two ranks on one GPU."""
    original = torch.distributed.init_process_group

    @functools.wraps(original)
    def initialise(backend: Any = None, *args: Any, **kwargs: Any) -> Any:
        if backend is None or "nccl" in str(backend):
            backend = "gloo"
        kwargs.pop("device_id", None)
        return original(backend, *args, **kwargs)

    torch.distributed.init_process_group = initialise


def _is_out_of_memory(error: Exception) -> bool:
    return isinstance(error, (MemoryError, torch.cuda.OutOfMemoryError))


def _write_to(log: str) -> None:
    """Redirect standard output and error to a file, and the input to the null device."""
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)
    os.close(empty)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]


class Gate:
    """Called after iterations; lets ``iterations`` pass, then waits for the next turn."""

    def __init__(
        self, link: Link, state: State, iterations: int, turnstile: Turnstile | None = None
    ) -> None:
        self._link = link
        self._turnstile = turnstile
        self._state = state
        self._remaining = self._turn = iterations
        self._pauses = 0
        self._size = 0
        self._reason = ""
        self._trim = True
        self._began = time.monotonic()

    def __call__(self, count: int) -> int:
        """Count ``count`` iterations since the last call; return how many remain of the turn."""
        self._remaining -= count
        if self._remaining <= 0:
            self._pause()
        return self._remaining

    def _pause(self) -> None:
        seconds = time.monotonic() - self._began
        self._state.settle()
        if self._turnstile is not None:
            self._turnstile.leave()  # a forward pass may have had no backward pass
        signals = DelayedSignals()
        self._pauses += 1
        if self._pauses & (self._pauses - 1) == 0:  # later it seldom grows; a look takes a while
            inventory = self._state.look()
            self._size, self._reason = inventory.size, inventory.obstacle
        self._link.send(
            paused=self._turn, seconds=seconds, bytes=self._size,
            peak=peak(self._state.device),
            held=idle_bytes(self._state.device, self._size, trim=self._trim),
            alone=self._reason, planned=session.expect_iterations(),
        )  # fmt: skip
        turn = self._wait()
        has_pipeline = turn["pipelined"] and not signals.pending and not turn["signal"]
        if not has_pipeline:
            self._state.load()
        self._remaining = self._turn = turn["iterations"]
        self._trim = turn["trim"]
        if self._turnstile is not None:
            self._turnstile.tight = self._trim
        self._began = time.monotonic()
        if has_pipeline:
            self._state.load_behind(signals)
        else:
            signals.release(turn["signal"])  # a handler may raise, and the script continue

    def _wait(self) -> dict[str, Any]:
        """Do what the executor says until it is this trial's turn."""
        while True:
            message = self._link.receive()
            if message is None:
                os._exit(1)  # its executor has ended
            if message["do"] == "evict":
                self._evict()
            elif message["do"] == "load":
                self._state.load()
                self._link.send(loaded=True)
            else:
                return message

    def _evict(self) -> None:
        inventory = self._state.look()
        if inventory.obstacle:
            self._link.send(refused=inventory.obstacle)
            return
        self._size = inventory.size
        self._state.evict(inventory)
        self._link.send(evicted=self._size)
