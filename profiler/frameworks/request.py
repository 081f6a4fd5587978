"""hops' request to leave, as it reaches a framework's loop."""

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
    """Whether all ranks are to leave: asked once after each step, on all ranks."""

    def __init__(self, signal_flag: SignalFlag) -> None:
        self._signal_flag, self._agreement = signal_flag, Agreement()
        self._agreement_met = False

    def is_due(self) -> bool:
        """True from the step on at which the ranks agree."""
        if not self._agreement_met:
            (self._agreement_met,) = self._agreement.reach(self._signal_flag.now)
        return self._agreement_met

    def decline(self) -> None:
        """From now on the signal ends the process, as without us."""
        self._signal_flag.listen_no_more()


def possible(ranks: int) -> bool:
    """Whether a training of ``ranks`` ranks can leave."""
    return is_free() and is_alone(ranks) and can_agree()


def can_agree() -> bool:
    """Whether the ranks' backend is one whose collectives were tried."""
    name = dist.get_backend() if several() else "gloo"
    return any(backend in name for backend in ("gloo", "nccl", "undefined"))


def is_free() -> bool:
    """False where a script handles the signal itself: it knows how it saves. Ranks may differ."""
    main = threading.current_thread() is threading.main_thread()
    return main and signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL and not _is_caught()


def _is_caught() -> bool:
    """Whether the process has a handler, also one that Python does not know, such as that of
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
    """Of several trainings in a step, the first to leave would end the others."""
    return (environment.tasks() or 1) <= ranks


def folder_in(base: Path) -> Path:
    """Where a training saves on request: the same folder in each of the job's runs."""
    return base / f"_hops-{environment.number()}"


class Turn:
    """Of the trainings in ``base`` in this run of the job, one saves on request: the first.

    It is the first in the next run, too, since it has not ended. Which others follow a script may
    decide by what has ended, and a later one would go on from the wrong checkpoint. While another
    runs beside it, it is not known which is the first. Asked on the first rank. Notes are kept on
    this node; epilog.sh removes them.
    """

    def __init__(self, base: Path) -> None:
        secret = environment.run_key().encode()  # or another user could take the turn
        name = hashlib.sha256(secret + os.fsencode(base)).hexdigest()[:16]
        run = f"{environment.number()}.{environment.restarts()}"
        self._first = Path(tempfile.gettempdir()) / f"hops-training.{run}.{name}"
        self._other_file = self._first.with_name(f"{self._first.name}.others")

    def take(self) -> bool:
        """Whether it is this training's."""
        if _make_file(self._first):
            return True
        _make_file(self._other_file)
        return False

    def is_taken(self) -> bool:
        """Whether a training has begun in this run."""
        return os.path.lexists(self._first)

    def is_shared(self) -> bool:
        """Whether another training has asked since."""
        return os.path.lexists(self._other_file)


def _make_file(path: Path) -> bool:
    try:
        path.touch(0o600, exist_ok=False)
    except OSError:
        return False
    return True


@contextlib.contextmanager
def listen_for_signal() -> Iterator[LeaveRequest]:
    """While this lasts hops' signal does not end the process, but is a request."""
    signal_flag = SignalFlag(signal.SIGUSR1)
    try:
        yield LeaveRequest(signal_flag)
    finally:
        signal_flag.listen_no_more()
        atexit.register(ignore)


def ignore() -> None:
    """A training has ended and its process exits: the signal would end it before, and the job
    would train once more from the beginning.
    """
    if signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)


def try_to_save(
    own_checkpoints: OwnCheckpoints,
    final: Path,
    save: Callable[[Path], None],
    stop_request: LeaveRequest,
) -> None:
    """Have ``save`` write ``final``. If it cannot, the job starts again from what there is: hops
    may be moving it. If the run before could not, either, the signal ends the process as without
    us: where Slurm has sent it before the time limit, the job would begin again and again.
    """
    try:
        save(final)
    except Exception as failure:  # of any framework, logger or file system
        sys.stderr.write(f"hops: {final}: not saved: {failure}\n")
        if own_checkpoints.fails_anew():
            leave(first=True)  # others may be waiting for this rank
        stop_request.decline()
        end_by_signal()
    own_checkpoints.has_saved()


def failed_in(names: Collection[str], failure: Exception) -> bool:
    """Whether one of the functions ``names`` raised it, for another reason than memory or files,
    which may have what it takes in the next run.
    """
    if isinstance(failure, (OSError, MemoryError, torch.cuda.OutOfMemoryError)):
        return False
    frames = traceback.walk_tb(failure.__traceback__)
    return any(frame.f_code.co_name in names for frame, _ in frames)


def unusable(own_checkpoints: OwnCheckpoints, failure: Exception, *, first: bool) -> None:
    """The training could not load ``own_checkpoints``: the next run begins as without it.
    Returns only where it would try ``own_checkpoints`` again.
    """
    if first and not own_checkpoints.set_aside():
        return
    sys.stderr.write(
        f"hops: cannot go on from {own_checkpoints.folder}, kept as .failed: {failure!r}\n"
    )
    leave(first=first)
