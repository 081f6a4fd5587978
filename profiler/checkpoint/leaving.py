"""Ends a training that has saved, so that hops starts the job again."""

from __future__ import annotations

import signal
import sys
import threading
from typing import NoReturn

from hops_profiler import environment
from hops_profiler.timing.ending import end_run, flush


def leave(*, first: bool) -> NoReturn:
    """End this rank once all have saved; call this on all ranks. Does not return.

    With ``first`` this rank asks Slurm to requeue the job.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # sent by Slurm to end the job
    job = environment.number()
    if job and not environment.is_trial():  # the lane ends when its trials have ended
        end_run(job, first=first)
    sys.exit(environment.requeue_code() or 128 + signal.SIGUSR1)


def end_by_signal() -> None:
    """End like a training without a handler for hops' signal, whose default has been restored."""
    flush()
    signal.raise_signal(signal.SIGUSR1)
