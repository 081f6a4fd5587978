"""How long a GPU waits for a training's save when hops takes it back: hops' checkpoint against a
plain save to the file system.

Measured from the signal until the training's process has exited, when Slurm may give its GPU away.
Both ways save the same state in turns and exit by the same code; the saved state is read back and
compared.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TRAIN = Path(__file__).with_name("save.py")
SAVE = Path(__file__).parents[2] / "slurm_plugin" / "save.sh"
COLUMNS = ("MB", "to memory s", "plain s", "ratio, median of pairs", "range", "written after s")


def measure(megabytes: int, pairs: int, folder: Path) -> list[str]:
    """Return a row of the table; plain saves go to ``folder``."""
    pairs_measured = []
    for number in range(pairs):
        ways = ("memory", "plain") if number % 2 else ("plain", "memory")
        pairs_measured.append({way: _leave(way, megabytes, folder) for way in ways})
    ratios = sorted(pair["memory"][0] / pair["plain"][0] for pair in pairs_measured)
    medians = [
        f"{statistics.median(p[way][0] for p in pairs_measured):.2f}" for way in ("memory", "plain")
    ]
    written_after = f"{statistics.median(pair['memory'][1] for pair in pairs_measured):.2f}"
    spread = f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
    return [str(megabytes), *medians, f"{statistics.median(ratios):.2f}", spread, written_after]


def _leave(way: str, megabytes: int, folder: Path) -> tuple[float, float]:
    """Seconds until the process has exited, and seconds that the epilog then wrote."""
    with (
        tempfile.TemporaryDirectory(dir="/dev/shm") as memory,
        tempfile.TemporaryDirectory(dir=folder) as files,
    ):
        (Path(memory) / "mounts").write_text(str(Path("/proc/self/ns/mnt").readlink()))
        environ = {**os.environ, "OMP_NUM_THREADS": "1", "HOPS_JOB": "1"}
        environ.pop("HOPS_REPORT_DIR", None)
        if way == "memory":
            environ["HOPS_STATE_DIR"] = memory
        checkpoint_path = Path(files) / "saved.pt"
        process = subprocess.Popen(
            [sys.executable, TRAIN, str(checkpoint_path), str(megabytes)],
            env=environ, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert process.stdout is not None
        total = process.stdout.readline()
        os.sync()  # earlier writes must not count
        began = time.monotonic()
        process.send_signal(signal.SIGUSR1)
        process.wait()
        gone_at = time.monotonic()
        subprocess.run(["/bin/sh", SAVE, memory], check=True)
        written_at = time.monotonic()
        check = subprocess.run(
            [sys.executable, TRAIN, str(checkpoint_path)],
            check=True,
            capture_output=True,
            text=True,
        )
        assert check.stdout == total, (check.stdout, total)
        return gone_at - began, written_at - gone_at
