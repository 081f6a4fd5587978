"""A signal lets a training save if it reaches a handler and kills no parent process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ASK = "from hops_profiler.timing.answers import handled_signals; print(*handled_signals())"
HANDLE = "import signal; signal.signal(signal.SIGUSR1, print); signal.signal(signal.SIGTERM, print)"
DIRECT = '"$@"; true'
UNDER_SHELL = """sh -c '"$@"; true' sh "$@"; true"""
UNDER_TRAP = """sh -c 'trap : USR1; "$@"; true' sh "$@"; true"""


@pytest.mark.parametrize(
    ("parents", "code", "step", "names"),
    [
        (DIRECT, HANDLE, "0", ["USR1", "TERM"]),
        (DIRECT, "0", "0", []),  # Python's default handler of SIGINT ends the training
        (DIRECT, "import signal; signal.signal(signal.SIGUSR1, signal.SIG_IGN)", "0", []),
        (UNDER_SHELL, HANDLE, "0", []),  # as under torchrun
        (UNDER_TRAP, HANDLE, "0", ["USR1"]),
        (DIRECT, HANDLE, "", []),  # the batch script: Slurm signals only steps
    ],
)
def test_a_signal_counts_as_handled_if_it_kills_no_process_of_the_task(
    tmp_path: Path, parents: str, code: str, step: str, names: list[str]
) -> None:
    slurmstepd = tmp_path / "slurmstepd"
    slurmstepd.write_text(f"#!/bin/sh\n{parents}\n")
    slurmstepd.chmod(0o755)
    result = subprocess.run(
        [slurmstepd, sys.executable, "-c", f"{code}\n{ASK}"],
        env={"SLURM_STEP_ID": step},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.split() == names
