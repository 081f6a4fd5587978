"""``python -m bench.overhead``: a table of the timing plugin's costs, in about four minutes.

Compares CPU time, alternating with and without the plugin, since load would hide 25 microseconds of
wall time. Iterations of 20 ms are compared block by block in one process, the smallest ones between
two processes.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hopsd.ctl.render import show, table

TRAIN = Path(__file__).parent / "train.py"
SITE = Path(__file__).parents[2] / "profiler" / "site"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.overhead", description=__doc__)
    parser.add_argument(
        "--blocks", type=int, default=200, help="of 21 iterations, with and without"
    )
    parser.add_argument("--turns", type=int, default=1000, help="of 50 of the smallest iterations")
    parser.add_argument("--iterations", type=int, default=100_000, help="of the memory test")
    parser.add_argument("--starts", type=int, default=40, help="of Python, with and without")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hops-overhead-") as spool:
        job = {
            "HOPS_JOB": "1",
            "HOPS_REPORT_DIR": spool,
            "SLURM_JOB_ID": "1",
            "SLURMD_NODENAME": "n0",
            "PYTHONPATH": str(SITE),
        }
        rows = [
            *_iteration(_run(job, "listened", options.blocks)),
            _smallest(job, options.turns),
            *_memory_rows(
                _run(job, "many", options.iterations), _run({}, "many", options.iterations)
            ),
            _start(job, options.starts),
        ]
    show(table("Cost of the timing plugin", ["of", "without", "with", "difference"], rows))


def _run(job: Mapping[str, str], *arguments: object) -> dict[str, Any]:
    """Run one of ``train.py``'s measurements, inside a hops job or outside."""
    process = subprocess.run(
        [sys.executable, "-W", "ignore", TRAIN, *map(str, arguments)],
        env=_environment(job),
        check=True,
        stdout=subprocess.PIPE,
    )
    return json.loads(process.stdout)  # type: ignore[no-any-return]


def _environment(job: Mapping[str, str]) -> dict[str, str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("HOPS_", "SLURM"))}
    clean.pop("PYTHONPATH", None)
    return clean | {"OMP_NUM_THREADS": "1", **job}


def _iteration(blocks: Mapping[str, Sequence[Sequence[float]]]) -> list[tuple[str, ...]]:
    """Medians, and the median difference of adjacent blocks."""
    rows: list[tuple[str, ...]] = []
    for label, prefix, index in (
        ("an iteration, processor time (ms)", "", 0),
        ("an iteration, wall time (ms)", "", 1),
        ("one of the first 13, processor time (ms)", "first_", 0),
    ):
        base_times, plugin_times = (
            [block[index] for block in blocks[prefix + name]] for name in ("off", "on")
        )
        differences = [b - a for a, b in zip(base_times, plugin_times, strict=True)]
        low, middle, high = statistics.quantiles(differences, n=4)
        usual = statistics.median(base_times)
        spread = f"quartiles {low / usual:+.2%}, {high / usual:+.2%}"
        rows.append(
            (
                label,
                f"{1e3 * usual:.3f}",
                f"{1e3 * statistics.median(plugin_times):.3f}",
                f"{1e6 * middle:+.0f} us, {middle / usual:+.2%} ({spread})",
            )
        )
    return rows


def _smallest(job: Mapping[str, str], turns: int) -> tuple[str, ...]:
    """Alternate two processes; compare their fastest tenths, which load disturbs least."""
    base_times, plugin_times = times = ([], [])  # type: tuple[list[float], list[float]]
    with _start_paced({}, turns) as first, _start_paced(job, turns) as second:
        for turn in range(turns):
            for index in (0, 1) if turn % 2 else (1, 0):
                process = (first, second)[index]
                print(file=process.stdin, flush=True)
                times[index].append(1e6 * float(process.stdout.readline()))  # type: ignore[union-attr]
    difference = statistics.median(b - a for a, b in zip(base_times, plugin_times, strict=True))
    share = difference / statistics.median(base_times)
    quick = [statistics.quantiles(series, n=10)[0] for series in times]
    return (
        "the smallest iteration, processor time (us)",
        *(f"{value:.0f}" for value in quick),
        f"{quick[1] - quick[0]:+.0f} us; median {difference:+.0f} us, {share:+.0%}",
    )


def _start_paced(job: Mapping[str, str], turns: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", TRAIN, "paced", str(turns)],
        env=_environment(job),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _memory_rows(plugin: Mapping[str, float], base: Mapping[str, float]) -> list[tuple[str, ...]]:
    growth = [measurement["grown_kib"] for measurement in (base, plugin)]
    peak = [measurement["peak_kib"] / 1024 for measurement in (base, plugin)]
    return [
        ("peak memory (MiB)", *(f"{v:.1f}" for v in peak), f"{peak[1] - peak[0]:+.1f} MiB"),
        (
            "its growth over the last 4/5 of the iterations (KiB)",
            *(f"{value:.0f}" for value in growth),
            f"{growth[1] - growth[0]:+.0f} KiB",
        ),
    ]


def _start(job: Mapping[str, str], starts: int) -> tuple[str, ...]:
    """Start an empty program and return the median CPU time."""
    times: dict[str, list[float]] = {"without": [], "with": []}
    for _ in range(starts):
        for name, environment in (("without", {}), ("with", job)):
            usage_before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(
                [sys.executable, "-c", "pass"], env=_environment(environment), check=True
            )
            usage_after = resource.getrusage(resource.RUSAGE_CHILDREN)
            cpu_seconds = (
                usage_after.ru_utime
                + usage_after.ru_stime
                - usage_before.ru_utime
                - usage_before.ru_stime
            )
            times[name].append(1e3 * cpu_seconds)
    base, plugin = (statistics.median(times[name]) for name in ("without", "with"))
    return (
        "start of a Python program without PyTorch (ms)",
        f"{base:.1f}",
        f"{plugin:.1f}",
        f"{plugin - base:+.1f} ms",
    )


if __name__ == "__main__":
    main()
