"""Passes hops' request to leave to a framework's loop."""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from hops_profiler import environment
from hops_profiler.checkpoint.leaving import end_by_signal, leave
from hops_profiler.checkpoint.wishes import Agreement, SignalFlag, several
from hops_profiler.frameworks.own import OwnCheckpoints


class LeaveRequest:
    """Whether all ranks should leave; all of them ask once after each step."""

    def __init__(self, signal_flag: SignalFlag) -> None:
        self._signal_flag, self._agreement = signal_flag, Agreement()
        self._agreement_met = False

    def is_due(self) -> bool:
        """Return True from the step on at which the ranks agree."""
        if not self._agreement_met:
            (self._agreement_met,) = self._agreement.reach(self._signal_flag.now)
        return self._agreement_met

    def decline(self) -> None:
        """Let the signal end the process from now on, as without hops."""
        self._signal_flag.listen_no_more()


def possible(ranks: int) -> bool:
    """Whether a training of ``ranks`` ranks can leave."""
    return is_free() and is_alone(ranks) and can_agree()


def can_agree() -> bool:
    """Whether the ranks' backend is one with which collectives were tested."""
    name = dist.get_backend() if several() else "gloo"
    return any(backend in name for backend in ("gloo", "nccl", "undefined"))


def is_free() -> bool:
    """Whether the script has no handler for the signal, which would save. Ranks may differ."""
    main = threading.current_thread() is threading.main_thread()
    return main and signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL and not _is_caught()


def _is_caught() -> bool:
    """Whether the process has a handler, even one unknown to Python, such as that of
    :func:`faulthandler.register`.
    """
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return False
    caught_line = next(
        (line for line in status.splitlines() if line.startswith("SigCgt:")), "SigCgt: 0"
    )
    return bool(int(caught_line.split()[1], 16) >> (signal.SIGUSR1 - 1) & 1)


def is_alone(ranks: int) -> bool:
    """Whether the step has only this training; else the first to leave would end the others."""
    return (environment.tasks() or 1) <= ranks


def folder_in(base: Path) -> Path:
    """Return the folder in which a training saves on request, the same in all of the job's runs."""
    return base / f"_hops-{environment.number()}"


class Turn:
    """Only the first of the trainings in ``base`` in a run of the job saves on request.

    It is also the first in the next run, since it has not ended. A script may decide by what has
    ended which trainings follow, so a later one could resume from the wrong checkpoint. If another
    training runs at the same time, it is unknown which is the first. Only the first rank asks.
    Notes are kept on this node; epilog.sh removes them.
    """

    def __init__(self, base: Path) -> None:
        secret = environment.run_key().encode()  # else another user could take the turn
        name = hashlib.sha256(secret + os.fsencode(base)).hexdigest()[:16]
        run = f"{environment.number()}.{environment.restarts()}"
        self._first = Path(tempfile.gettempdir()) / f"hops-training.{run}.{name}"
        self._other_file = self._first.with_name(f"{self._first.name}.others")

    def take(self) -> bool:
        """Take the turn; return whether it is this training's."""
        if _make_file(self._first):
            return True
        _make_file(self._other_file)
        return False

    def is_taken(self) -> bool:
        """Whether a training has begun in this run."""
        return os.path.lexists(self._first)

    def is_shared(self) -> bool:
        """Whether another training has asked since then."""
        return os.path.lexists(self._other_file)


def _make_file(path: Path) -> bool:
    try:
        path.touch(0o600, exist_ok=False)
    except OSError:
        return False
    return True


@contextlib.contextmanager
def listen_for_signal() -> Iterator[LeaveRequest]:
    """Make hops' signal a request, instead of the end of the process, inside this context."""
    signal_flag = SignalFlag(signal.SIGUSR1)
    try:
        yield LeaveRequest(signal_flag)
    finally:
        signal_flag.listen_no_more()
        atexit.register(ignore)


def ignore() -> None:
    """Ignore the signal when a training has ended and its process exits: otherwise it would end the
    process, and the job would train again from the beginning.
    """
    if signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)


def try_to_save(
    own_checkpoints: OwnCheckpoints,
    final: Path,
    save: Callable[[Path], None],
    stop_request: LeaveRequest,
) -> None:
    """Let ``save`` write ``final``. If that fails, the job starts again from earlier saves, since
    hops may be moving it. If the previous run failed, too, the signal ends the process as without
    hops; otherwise, if Slurm has sent it before the time limit, the job would start again forever.
    """
    try:
        save(final)
    except Exception as failure:  # from any framework, logger or file system
        sys.stderr.write(f"hops: {final}: not saved: {failure}\n")
        if own_checkpoints.fails_anew():
            leave(first=True)  # others may be waiting for this rank
        stop_request.decline()
        end_by_signal()
    own_checkpoints.has_saved()


def failed_in(names: Collection[str], failure: Exception) -> bool:
    """Whether one of the functions ``names`` raised ``failure`` for a reason other than memory or
    files, which may suffice in the next run.
    """
    if isinstance(failure, (OSError, MemoryError, torch.cuda.OutOfMemoryError)):
        return False
    frames = traceback.walk_tb(failure.__traceback__)
    return any(frame.f_code.co_name in names for frame, _ in frames)


def unusable(own_checkpoints: OwnCheckpoints, failure: Exception, *, first: bool) -> None:
    """Handle that the training could not load ``own_checkpoints``: the next run starts without.

    Returns only if the next run would try ``own_checkpoints`` again.
    """
    if first and not own_checkpoints.set_aside():
        return
    sys.stderr.write(
        f"hops: cannot resume from {own_checkpoints.folder}, kept as .failed: {failure!r}\n"
    )
    leave(first=first)
