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
_KILL_CODE = 137
_MAX_FAILURES = 3
"""Maximum number of executors that fail in a row before one takes a trial."""


@dataclass(eq=False)
class _Gpu:
    """A GPU's executor and its trials."""

    name: str
    pid: int
    link: Link
    trials: dict[int, Trial] = field(default_factory=dict)


class Lane:
    """``gpus`` is the number that this process may use; 0 for the CPU with its memory instead."""

    def __init__(
        self, settings: Settings, trials: Sequence[Trial], journal: Journal, gpus: int
    ) -> None:
        devices = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        names = [n.strip() for n in devices if n.strip()] or [str(n) for n in range(gpus)]
        self._names = names[:gpus]
        self._settings = settings
        self._journal = journal
        self._queue: list[Trial] = [t for t in trials if t.text not in journal.codes]
        self._trials = trials
        self._gpus: list[_Gpu] = []
        self._signal = 0
        self._failures = 0

    def run(self) -> int:
        """Run until all trials have ended, or a signal asks to end; return the exit code."""
        become_reaper()
        gc.collect()
        gc.freeze()  # so that the collector only sees objects made by workers
        waker, wakeups = socket.socketpair()
        for end in (waker, wakeups):
            end.setblocking(False)
        handlers = {number: signal.signal(number, self._note) for number in SIGNALS}
        signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
        for name in self._names or [""]:
            self._start(name)
        while self._gpus:
            self._hear(wakeups)
        signal.set_wakeup_fd(-1)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        end_orphans()
        return self._code()

    def _code(self) -> int:
        """Return the lane's exit code. After a signal, first let Slurm requeue the job."""
        codes = [self._journal.codes.get(trial.text) for trial in self._trials]
        if None in codes:
            if not self._signal:
                return 1
            job = environment.number()
            if job:
                end_run(job, first=True)
            return environment.requeue_code() or 128 + self._signal
        return int(any(codes))

    def _note(self, number: int, _: Any) -> None:
        self._signal = self._signal or number

    def _start(self, name: str) -> None:
        parent, child = pair()
        pid = fork()
        if pid:
            child.close()
            self._gpus.append(_Gpu(name, pid, parent))
            return
        signal.set_wakeup_fd(-1)
        parent.close()
        for gpu in self._gpus:
            gpu.link.close()
        self._gpus = []
        if name:
            os.environ["CUDA_VISIBLE_DEVICES"] = name
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)  # the lane sends a message instead
        Executor(self._settings, name, child).run()
        os._exit(0)

    def _hear(self, wakeups: socket.socket) -> None:
        poll = select.poll()
        links = {gpu.link.fileno(): gpu for gpu in self._gpus}
        for number in (*links, wakeups.fileno()):
            poll.register(number, select.POLLIN)
        for number, _ in poll.poll():
            gpu = links.get(number)
            if gpu is None:
                with contextlib.suppress(BlockingIOError):
                    wakeups.recv(4096)
                if self._signal:
                    self._stop()
                continue
            message = gpu.link.receive()
            if message is None:
                self._remove(gpu)
            elif "want" in message:
                self._give(gpu)
            else:
                trial = gpu.trials.pop(message["ended"])
                self._record(trial, message["code"])

    def _give(self, gpu: _Gpu) -> None:
        if not self._queue or self._signal:
            gpu.link.send(trial=None)
            return
        self._failures = 0
        trial = self._queue.pop(0)
        gpu.trials[trial.number] = trial
        gpu.link.send(trial=asdict(trial))

    def _record(self, trial: Trial, code: int) -> None:
        """Record a trial's end. After a signal it has only saved, and continues in the next run."""
        if self._signal:
            say(f"trial {trial.number} was asked to save, and ended with code {code}")
            return
        self._journal.record(trial, code)
        say(f"trial {trial.number} ended with code {code}: {trial.text}")

    def _stop(self) -> None:
        for gpu in self._gpus:
            gpu.link.send(stop=self._signal)

    def _remove(self, gpu: _Gpu) -> None:
        """Remove an executor that has ended; if it failed, its trials are lost."""
        self._gpus.remove(gpu)
        gpu.link.close()
        code = exit_code(os.waitpid(gpu.pid, 0)[1])
        end_orphans(*(executor.pid for executor in self._gpus))
        if not code:
            return
        say(f"an executor ended with code {code}")
        for trial in gpu.trials.values():
            self._record(trial, _KILL_CODE)
        self._failures += code < 128  # not killed, so something is wrong with its GPU
        if self._queue and not self._signal and self._failures < _MAX_FAILURES:
            self._start(gpu.name)


def become_reaper() -> None:
    """Become the parent of processes that executors leave behind (prctl(2))."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_orphans(*executors: int) -> None:
    """Kill and reap all children of this process except ``executors``."""
    while True:
        orphans = [pid for pid in _children() if pid not in executors]
        if not orphans:
            return
        for pid in orphans:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _children() -> list[int]:
    """Find children by /proc/PID/stat, where state and parent follow the name in brackets."""
    children = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
                if int(parent) == os.getpid():
                    children.append(int(entry.name))
    return children


def say(text: str) -> None:
    sys.stderr.write(f"hops-lane: {text}\n")
