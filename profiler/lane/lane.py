"""The lane: forks an executor for each GPU, hands out trials, and keeps the journal."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import select
import signal
import socket
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hops_profiler import environment
from hops_profiler.lane.executor import Executor
from hops_profiler.lane.link import Link, pair
from hops_profiler.lane.settings import SIGNALS, Settings
from hops_profiler.lane.trials import Journal, Trial
from hops_profiler.launch.ranks import exit_code, fork
from hops_profiler.timing.ending import end_run

_PR_SET_CHILD_SUBREAPER = 36
_LOST = 137
_MOST_FAILURES = 3
"""Of executors, one after the other, before they have taken up a trial."""


@dataclass(eq=False)
class _Gpu:
    """A GPU's executor, and the trials it has."""

    name: str
    pid: int
    link: Link
    trials: dict[int, Trial] = field(default_factory=dict)


class Lane:
    """``gpus``: how many this process may use; none means the CPU, with memory in a GPU's place."""

    def __init__(
        self, settings: Settings, trials: Sequence[Trial], journal: Journal, gpus: int
    ) -> None:
        here = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        names = [n.strip() for n in here.split(",") if n.strip()] or [str(n) for n in range(gpus)]
        self._names = names[:gpus]
        self._settings = settings
        self._journal = journal
        self._left: list[Trial] = [t for t in trials if t.text not in journal.codes]
        self._all = trials
        self._gpus: list[_Gpu] = []
        self._signal = 0
        self._failures = 0

    def run(self) -> int:
        """Until all trials have ended, or a signal asks to; returns the exit code."""
        become_reaper()
        gc.collect()
        gc.freeze()  # so that a worker's own objects are all that the collector sees
        waking, woken = socket.socketpair()
        for end in (waking, woken):
            end.setblocking(False)
        before = {number: signal.signal(number, self._noted) for number in SIGNALS}
        signal.set_wakeup_fd(waking.fileno(), warn_on_full_buffer=False)
        for name in self._names or [""]:
            self._start(name)
        while self._gpus:
            self._hear(woken)
        signal.set_wakeup_fd(-1)
        for number, handler in before.items():
            signal.signal(number, handler)
        end_orphans()
        return self._code()

    def _code(self) -> int:
        """The lane's exit code. One that was asked to end has Slurm requeue its job."""
        codes = [self._journal.codes.get(trial.text) for trial in self._all]
        if None in codes:
            if not self._signal:
                return 1
            job = environment.number()
            if job:
                end_run(job, first=True)
            return environment.requeue_code() or 128 + self._signal
        return int(any(codes))

    def _noted(self, number: int, _: Any) -> None:
        self._signal = self._signal or number

    def _start(self, name: str) -> None:
        own, other = pair()
        pid = fork()
        if pid:
            other.close()
            self._gpus.append(_Gpu(name, pid, own))
            return
        signal.set_wakeup_fd(-1)
        own.close()
        for gpu in self._gpus:
            gpu.link.close()
        self._gpus = []
        if name:
            os.environ["CUDA_VISIBLE_DEVICES"] = name
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)  # the lane says what is to be done
        Executor(self._settings, name, other).run()
        os._exit(0)

    def _hear(self, woken: socket.socket) -> None:
        poll = select.poll()
        links = {gpu.link.fileno(): gpu for gpu in self._gpus}
        for number in (*links, woken.fileno()):
            poll.register(number, select.POLLIN)
        for number, _ in poll.poll():
            gpu = links.get(number)
            if gpu is None:
                with contextlib.suppress(BlockingIOError):
                    woken.recv(4096)
                if self._signal:
                    self._stop()
                continue
            message = gpu.link.receive()
            if message is None:
                self._ended(gpu)
            elif "want" in message:
                self._give(gpu)
            else:
                trial = gpu.trials.pop(message["ended"])
                self._record(trial, message["code"])

    def _give(self, gpu: _Gpu) -> None:
        if not self._left or self._signal:
            gpu.link.send(trial=None)
            return
        self._failures = 0
        trial = self._left.pop(0)
        gpu.trials[trial.number] = trial
        gpu.link.send(trial=asdict(trial))

    def _record(self, trial: Trial, code: int) -> None:
        """A trial has ended. If it was told to save and end, it has more to do in the next run."""
        if self._signal:
            say(f"trial {trial.number} was asked to save, and ended with code {code}")
            return
        self._journal.record(trial, code)
        say(f"trial {trial.number} ended with code {code}: {trial.text}")

    def _stop(self) -> None:
        for gpu in self._gpus:
            gpu.link.send(stop=self._signal)

    def _ended(self, gpu: _Gpu) -> None:
        """An executor has: if it did not end by itself, its trials are lost."""
        self._gpus.remove(gpu)
        gpu.link.close()
        code = exit_code(os.waitpid(gpu.pid, 0)[1])
        end_orphans(*(other.pid for other in self._gpus))
        if not code:
            return
        say(f"an executor ended with code {code}")
        for trial in gpu.trials.values():
            self._record(trial, _LOST)
        self._failures += code < 128  # not killed: there is something wrong with its GPU
        if self._left and not self._signal and self._failures < _MOST_FAILURES:
            self._start(gpu.name)


def become_reaper() -> None:
    """Have what an executor leaves behind become this process's children (prctl(2))."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_orphans(*own: int) -> None:
    """Kill and reap all children of this process but ``own``."""
    while True:
        found = [pid for pid in _children() if pid not in own]
        if not found:
            return
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _children() -> list[int]:
    """From /proc/PID/stat: after the name in brackets, state and parent."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
                if int(parent) == os.getpid():
                    found.append(int(entry.name))
    return found


def say(what: str) -> None:
    sys.stderr.write(f"hops-lane: {what}\n")
