"""Ends a profiling run that has measured enough, and detects runs that end out of memory."""

from __future__ import annotations

import contextlib
import logging
import math
import subprocess
import sys
import time

from hops_profiler.timing.counts import Counts

MIN_ITERATIONS, MAX_ITERATIONS = 10, 50
PRECISION = 0.02
PATIENCE_SECONDS = 60.0
MAX_CAUSES = 20
"""Maximum number of exceptions read in a chain of causes."""


def enough(counts: Counts, limit: int) -> bool:
    """Whether a profiling run has timed enough iterations: from 10 to ``limit``, but at most 50
    (section 3.2), and fewer than the limit once their mean is known to 2 %.
    """
    times = counts.iteration
    if times.count < MIN_ITERATIONS:
        return False
    error = times.deviation / math.sqrt(times.count)
    return times.count >= min(limit, MAX_ITERATIONS) or error <= PRECISION * times.mean


def out_of_memory() -> bool:
    """Whether the process ends because a GPU ran out of memory. Called by an `atexit` handler.

    Reads the uncaught exception. If a process of `torch.multiprocessing.spawn` failed, its parent
    has the traceback as text.
    """
    error: BaseException | None = getattr(sys, "last_value", None)
    for _ in range(MAX_CAUSES):
        if error is None:
            return False
        if type(error).__name__ == "OutOfMemoryError" or "CUDA out of memory" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def end_run(job: str, *, first: bool) -> None:
    """Give the GPU back; returns only if Slurm did not end the job.

    The ``first`` rank asks Slurm, as the job's user, to requeue and hold the job. This ends the
    whole job however its script is nested, triggers no dependency, and starts no later step of the
    script. No process exits by itself: the script could conclude that the training has finished or
    failed, and the job would be lost; or a ``finally`` block or exit handler could save a model
    that has seen 50 batches. If Slurm cannot be reached (a container without its commands),
    training continues until hopsd requeues the job.
    """
    flush()
    for handler in logging.getLogger().handlers:
        handler.flush()
    if not first or _requeue(job):
        time.sleep(PATIENCE_SECONDS)


def flush() -> None:
    """Flush standard output and error before an exit that bypasses Python's."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # closed (``>&-``), or full
            stream.flush()


def _requeue(job: str) -> bool:
    """Requeue and hold ``job``; True if Slurm accepted the request and its signal will follow."""
    command = ["scontrol", "requeuehold", job]
    try:
        return subprocess.run(command, check=False, capture_output=True, timeout=30).returncode == 0
    except (OSError, subprocess.SubprocessError):
        return False
