"""Twelve trainings on two fake GPUs of a live Slurm: as plain jobs, and as one job with lanes.

An iteration of ``sweep_trial.py`` mostly sleeps, like a process whose GPU computes, so two cores
suffice for two GPUs. A GPU is in use while an iteration runs on it.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from examples.demo.cluster import NodeSpec, PrivateCluster

TRIAL = Path(__file__).with_name("sweep_trial.py")
ROOT = Path(__file__).parents[2]
GPUS = 2
COLUMNS = (
    "12 trainings as",
    "until the last has ended",
    "until one has ended, mean",
    "GPUs in use",
)
PATIENCE_SECONDS = 280.0


def measure(trials: int = 12, iterations: int = 60) -> list[list[str]]:
    """Return a row for each way."""
    rows = []
    lengths = [iterations // 2 + iterations * n % (iterations + 1) for n in range(trials)]
    for name, submit in WAYS.items():
        with tempfile.TemporaryDirectory(prefix="hops-bench-") as text:
            folder = Path(text)
            folder.chmod(0o755)
            with PrivateCluster(
                folder / "slurm", nodes=(NodeSpec("rtx3090", gpus=GPUS),), plugin=False
            ) as slurm:
                began = time.monotonic()
                submit(slurm, folder, [f"{TRIAL} {n} {folder}" for n in lengths])
                ends, seconds = _wait(folder, trials)
        whole, mean = max(ends) - began, statistics.mean(ends) - began
        rows.append([name, f"{whole:.1f} s", f"{mean:.1f} s", f"{seconds / GPUS / whole:.0%}"])
    return rows


def _plain(slurm: PrivateCluster, folder: Path, commands: Iterable[str]) -> None:
    for command in commands:
        _submit(slurm, folder, f"{sys.executable} {command}", gpus=1)


def _lanes(slurm: PrivateCluster, folder: Path, commands: Iterable[str], order: str) -> None:
    (folder / "trials").write_text("\n".join(commands))
    line = f"{sys.executable} -m hops_profiler.lane --order={order} {folder}/trials"
    _submit(slurm, folder, line, gpus=GPUS)


WAYS: dict[str, Callable[[PrivateCluster, Path, list[str]], object]] = {
    "plain jobs": _plain,
    "lanes, in a circle": partial(_lanes, order="round-robin"),
    "lanes, in Hare's order": partial(_lanes, order="hare-dispatch"),
}


def _submit(slurm: PrivateCluster, folder: Path, line: str, gpus: int) -> None:
    subprocess.run(
        ["sbatch", f"--gres=gpu:{gpus}", f"--output={folder}/log", "--open-mode=append",
         f"--chdir={folder}", f"--wrap={line}"],
        env={**os.environ, **slurm.env, "OMP_NUM_THREADS": "1",
             "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        check=True, capture_output=True,
    )  # fmt: skip


def _wait(folder: Path, trials: int) -> tuple[list[float], float]:
    """Wait for all trials; return each one's end time, and the seconds of all iterations."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(files := list(folder.glob("ended.*"))) < trials:
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"{len(files)} of {trials} have ended: {(folder / 'log').read_text()}"
            )
        time.sleep(0.05)
    read = [json.loads(path.read_text()) for path in files]
    return [end_time for end_time, _ in read], sum(seconds for _, seconds in read)
