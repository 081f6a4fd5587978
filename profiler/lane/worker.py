"""A worker: waits with everything imported, becomes one trial, and waits again at its gate."""

from __future__ import annotations

import functools
import os
import sys
import time
from typing import Any

import torch
from hops_profiler.lane.link import Link
from hops_profiler.lane.settings import OUT_OF_MEMORY
from hops_profiler.lane.signals import HeldSignals
from hops_profiler.lane.state import State, keeps, peak
from hops_profiler.lane.turnstile import Turnstile
from hops_profiler.launch import script
from hops_profiler.timing import session


def serve(link: Link, turnstile: Turnstile | None = None) -> None:
    """Be a worker until its trial has ended: on the GPU, or on the CPU where there is none.

    ``turnstile``: of the ranks of a trial that has several.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    free = 0
    if device.type == "cuda":
        torch.empty(1, device=device)  # the context; draws no random number
        free = torch.cuda.mem_get_info()[0]
    link.send(ready=free)
    told = link.receive()
    if told is None:
        sys.exit(1)
    os.register_at_fork(after_in_child=link.close)
    _write_to(told["log"])
    shared = told["ranks"] > 1
    if shared and device.type == "cuda":
        _sum_on_one_gpu()
    gate = Gate(link, State(device, shared=shared), told["iterations"], turnstile)
    session.stop_at(gate)
    if turnstile is not None:
        turnstile.attach()
    os.environ["HOPS_TRIAL"] = str(told["number"])
    try:
        script.run(told["arguments"], module=told["module"])
    except (MemoryError, RuntimeError) as error:
        if not _is_out_of_memory(error):
            raise
        sys.stderr.write(f"hops-lane: out of memory: {error}\n")
        sys.exit(OUT_OF_MEMORY)
    sys.exit(0)


def _sum_on_one_gpu() -> None:
    """NCCL refuses two ranks on one GPU: have Gloo sum their gradients."""
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
    """Let standard output and error be a file, and the input be empty."""
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)
    os.close(empty)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]


class Gate:
    """Called after iterations: lets ``iterations`` pass, then waits for its next turn."""

    def __init__(
        self, link: Link, state: State, iterations: int, turnstile: Turnstile | None = None
    ) -> None:
        self._link = link
        self._turnstile = turnstile
        self._state = state
        self._left = self._given = iterations
        self._pauses = 0
        self._size = 0
        self._reason = ""
        self._trim = True
        self._began = time.monotonic()

    def __call__(self, ended: int) -> int:
        """``ended``: iterations since the last call. Returns how many are left of the turn."""
        self._left -= ended
        if self._left <= 0:
            self._pause()
        return self._left

    def _pause(self) -> None:
        seconds = time.monotonic() - self._began
        self._state.settle()
        if self._turnstile is not None:
            self._turnstile.leave()  # of a forward pass without a backward pass
        held = HeldSignals()
        self._pauses += 1
        if self._pauses & (self._pauses - 1) == 0:  # later it seldom grows; looking takes a while
            seen = self._state.look()
            self._size, self._reason = seen.size, seen.fixed
        self._link.send(
            paused=self._given, seconds=seconds, bytes=self._size,
            peak=peak(self._state.device),
            held=keeps(self._state.device, self._size, trim=self._trim),
            alone=self._reason, planned=session.expect_iterations(),
        )  # fmt: skip
        told = self._wait()
        behind = told["pipelined"] and not held.came and not told["signal"]
        if not behind:
            self._state.load()
        self._left = self._given = told["iterations"]
        self._trim = told["trim"]
        if self._turnstile is not None:
            self._turnstile.tight = self._trim
        self._began = time.monotonic()
        if behind:
            self._state.load_behind(held)
        else:
            held.release(told["signal"])  # a handler may raise, and the script go on

    def _wait(self) -> dict[str, Any]:
        """Do as told until it is this trial's turn."""
        while True:
            told = self._link.receive()
            if told is None:
                os._exit(1)  # without its executor
            if told["do"] == "evict":
                self._evict()
            elif told["do"] == "load":
                self._state.load()
                self._link.send(loaded=True)
            else:
                return told

    def _evict(self) -> None:
        seen = self._state.look()
        if seen.fixed:
            self._link.send(refused=seen.fixed)
            return
        self._size = seen.size
        self._state.evict(seen)
        self._link.send(evicted=self._size)
