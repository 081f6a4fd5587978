"""``python -m bench.switch [--pairs N]``: from a launcher's start to the first iteration.

Both launchers start the same training in turns, so that a machine whose speed drifts is the same
for both. What a restart costs beside this (the checkpoint, Slurm) is the same for both, too.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

TRAIN = Path(__file__).with_name("train.py")
LAUNCHERS = {"launcher": "hops_profiler.launch", "torchrun": "torch.distributed.run"}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.switch", description=__doc__)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    options = parser.parse_args()
    table = Table("ranks", "launcher s", "torchrun s", "ratio, median of pairs", "range")
    for ranks in options.ranks:
        seconds = [{n: _first_iteration(m, ranks) for n, m in _in_turns(i)}
                   for i in range(options.pairs)]  # fmt: skip
        ratios = sorted(pair["launcher"] / pair["torchrun"] for pair in seconds)
        medians = [f"{statistics.median(p[name] for p in seconds):.2f}" for name in LAUNCHERS]
        spread = f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
        table.add_row(str(ranks), *medians, f"{statistics.median(ratios):.2f}", spread)
    Console().print(table)


def _in_turns(pair: int) -> list[tuple[str, str]]:
    both = list(LAUNCHERS.items())
    return both[::-1] if pair % 2 else both


def _first_iteration(module: str, ranks: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "first"
        began = time.monotonic()
        subprocess.run(
            [sys.executable, "-m", module, f"--nproc-per-node={ranks}", str(TRAIN)],
            env={**os.environ, "BENCH_OUT": str(out), "OMP_NUM_THREADS": "1"},
            check=True, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        return float(out.read_text()) - began


if __name__ == "__main__":
    main()
