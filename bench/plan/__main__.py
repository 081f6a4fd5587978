"""``python -m bench.plan``: a table from 512 GPUs on; ``--plot`` draws how time grows."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from bench.plan.instances import Case, Demands, Noise, gap_of_bar
from bench.plan.measure import measure
from bench.plan.row import run_row

_HEAD = (
    "  GPUs case noise       demands  columns  total  window config  model  solve    cpu"
    "   objective       bound   gap %  status       idle  GiB   CBC alone      HiGHS alone"
)


def main() -> None:
    """Print the table; each row runs in a fresh process so that its peak memory is its own."""
    options = _options()
    if options.row:
        print(json.dumps(_measure(options)))
        return
    if options.plot:
        from bench.plan.plot import draw  # noqa: PLC0415  # needs matplotlib

        draw(Path(options.plot), options.seed)
        return
    print(_HEAD)
    rows = []
    for gpus, case, noise, demands in _rows(options):
        row = run_row(
            gpus,
            case,
            noise,
            options.seed,
            options.time_limit,
            demands=demands,
            plain=not options.no_plain,
            jobs=options.jobs,
            gap=gap_of_bar(gpus) if options.gap is None else options.gap,
        )
        print(_line(row), flush=True)
        rows.append(row)
    if options.growth:
        print("\n".join(growth(rows)))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.plan", description=__doc__)
    parser.add_argument("--gpus", type=int, nargs="+", default=[512, 1000, 2048, 10_000])
    parser.add_argument("--case", type=Case, nargs="+", default=list(Case))
    parser.add_argument("--noise", type=Noise, nargs="+", default=list(Noise))
    parser.add_argument("--demands", type=Demands, nargs="+", default=[Demands.NONE])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, help="queue length (default: GPUs / 2)")
    parser.add_argument(
        "--gap", type=float, help="default: 0.01; above 10,000 GPUs 0.015, above 40,000 0.02"
    )
    parser.add_argument("--growth", action="store_true", help="print exponents of time and memory")
    parser.add_argument("--time-limit", type=float, default=15.0, help="seconds, for everyone")
    parser.add_argument("--no-plain", action="store_true", help="leave the plain program out")
    parser.add_argument("--plot", metavar="PNG", help="draw time against GPUs and queue length")
    parser.add_argument("--row", action="store_true", help="one row as JSON, in this process")
    return parser.parse_args()


def _rows(options: argparse.Namespace) -> Iterator[tuple[int, Case, Noise, Demands]]:
    return product(options.gpus, options.case, options.noise, options.demands)


def growth(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield exponents of growth with the GPUs, fitted over all sizes of one kind."""
    kinds = dict.fromkeys((row["case"], row["noise"], row["demands"]) for row in rows)
    for kind in kinds:
        kind_rows = [row for row in rows if (row["case"], row["noise"], row["demands"]) == kind]
        if len({row["gpus"] for row in kind_rows}) > 1:
            gpus = np.log([row["gpus"] for row in kind_rows])
            exponents = [
                f"{name} {np.polyfit(gpus, np.log(figures), 1)[0]:.2f}"
                for name, figures in (
                    ("seconds", [row["seconds"]["total"] for row in kind_rows]),
                    ("CPU seconds", [row["cpu_seconds"] for row in kind_rows]),
                    ("GiB", [row["peak_gib"] for row in kind_rows]),
                )
            ]
            yield f"{' '.join(kind)}: GPUs to the power of: {', '.join(exponents)}"


def _measure(options: argparse.Namespace) -> dict[str, object]:
    return measure(
        options.gpus[0],
        options.case[0],
        options.noise[0],
        options.seed,
        demands=options.demands[0],
        jobs=options.jobs,
        gap=gap_of_bar(options.gpus[0]) if options.gap is None else options.gap,
        time_limit=options.time_limit,
        plain=not options.no_plain,
    )


def _line(row: dict[str, Any]) -> str:
    seconds = row["seconds"]
    stages = " ".join(
        f"{seconds[s]:6.2f}" for s in ("total", "window", "configurations", "model", "solve")
    )
    plain = [
        f"{100 * p['quality']:5.1f} % {p['seconds']:5.1f} s" for p in row["plain"].values()
    ] or ["not run"]
    return (
        f"{row['gpus']:6d} {row['case']:>4} {row['noise']:<11} {row['demands']:<7}"
        f" {row['columns']:8d} {stages}"
        f" {row['cpu_seconds']:6.2f} {row['objective']:11.2f} {row['bound']:11.2f}"
        f" {100 * row['gap']:7.3f}  {row['status']:<11} {row['idle_left']:5d}"
        f" {row['peak_gib']:4.2f}  {'  '.join(plain)}"
    )


if __name__ == "__main__":
    main()
