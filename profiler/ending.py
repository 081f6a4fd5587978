"""How a profiling run ends once it has measured enough."""

from __future__ import annotations

import logging
import math
import os
import subprocess
import sys
import time

from hops_profiler.counts import Counts

FEWEST, MOST = 10, 50
PRECISION = 0.02
PATIENCE_SECONDS = 60.0
DEFAULT_EXIT_CODE = 85


def enough(counts: Counts) -> bool:
    """10 to 50 iterations (section 3.2): until their mean is known to 2 %."""
    times = counts.iteration
    if times.count < FEWEST:
        return False
    error = times.deviation / math.sqrt(times.count)
    return times.count >= MOST or error <= PRECISION * times.mean


def end_run(job: str, exit_code: int | None, *, first: bool) -> None:
    """Give the GPU back; does not return.

    The ``first`` rank asks Slurm, as the job's own user, to requeue and hold the job: that ends
    all of it however its script is nested, triggers no dependency, and starts no later step of
    the script. Where that does not end it, the process exits with the site's requeue code. It
    does not unwind: ``finally`` blocks and exit handlers may save a model that has seen 50
    batches.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    logging.shutdown()
    if not first or _requeue(job):
        time.sleep(PATIENCE_SECONDS)
    os._exit(DEFAULT_EXIT_CODE if exit_code is None else exit_code)


def _requeue(job: str) -> bool:
    """True where Slurm took the request: its signal is on the way."""
    command = ["scontrol", "requeuehold", job]
    try:
        return subprocess.run(command, check=False, capture_output=True, timeout=30).returncode == 0
    except (OSError, subprocess.SubprocessError):
        return False
