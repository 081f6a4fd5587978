"""Finds the signals that this process handles, with which training can save before its end."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from hops_profiler import environment

NAMES = ("USR1", "USR2", "TERM", "INT", "HUP")
"""The signals of sbatch's ``--signal`` that hops sends."""

_MAX_PARENTS = 16


def handled_signals() -> list[str]:
    """Names of the signals that this process handles and that no process above it dies of.

    srun's signal reaches all processes of a task: it would kill torchrun, or a shell without a
    trap, and the ranks with it. Empty outside a step, as Slurm sends these signals only to steps.
    """
    if not environment.step():
        return []
    numbers = {name: signal.Signals[f"SIG{name}"] for name in NAMES}
    names = [name for name, number in numbers.items() if _has_handler(number)]
    handled_mask = _survived_by_parents() if names else 0
    return [name for name in names if handled_mask >> (numbers[name] - 1) & 1]


def _has_handler(number: signal.Signals) -> bool:
    handler = signal.getsignal(number)
    return handler not in (signal.SIG_DFL, signal.SIG_IGN, signal.default_int_handler)


def _survived_by_parents() -> int:
    """Mask whose bit n - 1 is set if no process up to Slurm's dies of signal n (proc(5))."""
    handled_mask, pid = ~0, os.getppid()
    for _ in range(_MAX_PARENTS):
        if pid <= 1:  # the first process of a container
            break
        try:
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        except OSError:
            return 0
        status = dict(line.partition(":\t")[::2] for line in lines)
        if status["Name"] == "slurmstepd":
            break
        handled_mask &= int(status["SigIgn"], 16) | int(status["SigCgt"], 16)
        pid = int(status["PPid"])
    return handled_mask
