"""How a training leaves that has saved: hops starts the job again."""

from __future__ import annotations

import signal
import sys
import threading
from typing import NoReturn

from hops_profiler import environment
from hops_profiler.timing.ending import end_run, flush


def leave(*, first: bool) -> NoReturn:
    """Give the GPUs back; called on all ranks, once all have saved. Does not return.

    ``first``: of the rank that asks Slurm to requeue the job.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # Slurm's, which ends the job
    job = environment.number()
    if job and not environment.is_trial():  # the lane ends when its trials have
        end_run(job, first=first)
    sys.exit(environment.requeue_code() or 128 + signal.SIGUSR1)


def end_by_signal() -> None:
    """End as a training does that has no handler for hops' signal, which is its default again."""
    flush()
    signal.raise_signal(signal.SIGUSR1)
