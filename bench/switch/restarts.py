"""Time from a launcher's start to the first iteration, for hops' launcher and torchrun.

The launchers start the same training alternately, so that drift of the machine affects both. The
rest of a restart (checkpoint, Slurm) is the same for both.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TRAIN = Path(__file__).with_name("train.py")
LAUNCHERS = {"launcher": "hops_profiler.launch", "torchrun": "torch.distributed.run"}
COLUMNS = ("ranks", "launcher s", "torchrun s", "ratio, median of pairs", "range")


def measure(ranks: int, pairs: int) -> list[str]:
    """Return a row of the table."""
    seconds = [{n: _first_iteration(m, ranks) for n, m in _in_turns(i)} for i in range(pairs)]
    ratios = sorted(pair["launcher"] / pair["torchrun"] for pair in seconds)
    medians = [f"{statistics.median(p[name] for p in seconds):.2f}" for name in LAUNCHERS]
    spread = f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
    return [str(ranks), *medians, f"{statistics.median(ratios):.2f}", spread]


def _in_turns(pair: int) -> list[tuple[str, str]]:
    launchers = list(LAUNCHERS.items())
    return launchers[::-1] if pair % 2 else launchers


def _first_iteration(module: str, ranks: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        marker = Path(folder) / "first"
        began = time.monotonic()
        subprocess.run(
            [sys.executable, "-m", module, f"--nproc-per-node={ranks}", str(TRAIN)],
            env={**os.environ, "BENCH_OUT": str(marker), "OMP_NUM_THREADS": "1"},
            check=True, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        return float(marker.read_text()) - began
