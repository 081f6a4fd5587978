"""Starts, signals and ends the ranks of one node together."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import FrameType

from hops_profiler import environment

GRACE_SECONDS = 30.0
"""Time until SIGKILL for the other ranks after one has failed, the same as Slurm's KillWait."""

_FORWARD = ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGQUIT", "SIGCONT")
_PR_SET_PDEATHSIG = 1


@dataclass
class Ranks:
    """``pids`` by local rank. ``code`` is that of the first failed rank, 0 while none has."""

    pids: dict[int, int] = field(default_factory=dict)
    code: int = 0

    def start(self, local_rank: int, enter: Callable[[], None]) -> bool:
        """Fork a rank; return True in the rank itself, after calling ``enter`` there."""
        pid = fork()
        if pid:
            self.pids[local_rank] = pid
            return False
        enter()
        return True

    def wait(self) -> int:
        """Wait until all ranks have ended; return the exit code of the first that failed, 128 + n
        after signal n.
        """
        while self.pids:
            pid, status = os.wait()
            rank = next((rank for rank, number in self.pids.items() if number == pid), None)
            if rank is None:
                continue
            del self.pids[rank]
            code = exit_code(status)
            if code and not self.code:
                self.code = code
                if ends_others(code):
                    self.send(signal.SIGTERM)
                signal.setitimer(signal.ITIMER_REAL, GRACE_SECONDS)
        signal.setitimer(signal.ITIMER_REAL, 0)
        return self.code

    def send(self, number: int) -> None:
        """Send signal ``number`` to every rank that is still running."""
        for pid in list(self.pids.values()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    @contextlib.contextmanager
    def forward_signals(self) -> Iterator[None]:
        """Forward signals for the launcher to the ranks inside this context."""

        def pass_on(number: int, _: FrameType | None) -> None:
            self.send(signal.SIGKILL if number == signal.SIGALRM else number)

        names = [getattr(signal, name) for name in (*_FORWARD, "SIGALRM")]
        handlers = {number: signal.signal(number, pass_on) for number in names}
        try:
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)


def ends_others(code: int) -> bool:
    """Whether the other ranks get SIGTERM after one ended with ``code``; not if it ended to be
    requeued, as SIGTERM would interrupt the saves of the others.
    """
    return code != environment.requeue_code()


def fork() -> int:
    """Like :func:`os.fork`, but the child has its own session, no handlers, and dies with us."""
    parent = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if not pid:
        for name in (*_FORWARD, "SIGALRM"):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.setsid()
        _die_with(parent)
    return pid


def exit_code(status: int) -> int:
    """Return the exit code in ``status`` of :func:`os.wait`; 128 + n after signal n."""
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def _die_with(parent: int) -> None:
    """Let this process end with the launcher, even if that is killed (prctl(2))."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def command(arguments: Sequence[str], *, module: bool, python: bool) -> list[str]:
    """Return the command line of a rank that is a separate process."""
    if not python:
        return list(arguments)
    flags = [f"-{'O' * sys.flags.optimize}"] if sys.flags.optimize else []
    return [sys.executable, "-u", *flags, *(["-m"] if module else []), *arguments]
