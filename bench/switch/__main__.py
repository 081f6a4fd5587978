"""``python -m bench.switch``: how fast trainings restart and take turns; docs/switching.md.

Without options, runs all parts: restarts by hops' launcher and torchrun, alone and in Slurm; saves
that a GPU waits for; switches between two trainings; the gate's cost; a sweep as lanes and as plain
jobs; and what spreading a trial's ranks would gain. ``--cuda`` measures the switches on a GPU:
``turns --cuda`` needs PyTorch and rich, but neither Slurm nor hopsd.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.switch import gate, turns

PARTS = ("restarts", "live", "saves", "turns", "gate", "sweep", "spread")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.switch", description=__doc__)
    parser.add_argument(
        "parts", nargs="*", metavar="PART", default=list(PARTS), help=", ".join(PARTS)
    )
    parser.add_argument("--pairs", type=int, default=10, help="of restarts")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--megabytes", type=int, nargs="+", default=[10, 100, 440])
    parser.add_argument("--ways", nargs="+", choices=turns.WAYS, default=turns.WAYS)
    parser.add_argument("--switches", type=int, default=12)
    parser.add_argument("--folder", type=Path, default=Path(), help="file system for plain saves")
    parser.add_argument("--cuda", action="store_true", help="measure switches on a GPU")
    options = parser.parse_args()
    console = Console()
    console.print(f"load of this machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    if "restarts" in options.parts:
        from bench.switch import restarts  # noqa: PLC0415 - a machine with a GPU may lack hopsd

        table = Table(*restarts.COLUMNS)
        for ranks in options.ranks:
            table.add_row(*restarts.measure(ranks, options.pairs))
        console.print(table)
    if "live" in options.parts:
        from bench.switch import live  # noqa: PLC0415

        table = Table(*live.COLUMNS)
        for ranks in options.ranks:
            table.add_row(*live.measure(ranks, options.pairs))
        console.print(table)
    if "saves" in options.parts:
        from bench.switch import saves  # noqa: PLC0415

        table = Table(*saves.COLUMNS)
        table.add_row(*saves.measure(1024, options.pairs, options.folder))
        console.print(table)
    if "turns" in options.parts:
        if options.cuda and not _has_gpu():
            sys.exit("no GPU: switches were not measured")
        _print_turns(options, console)
    if "gate" in options.parts:
        console.print(f"gate: {gate.measure():.2f} us an iteration")
    if "sweep" in options.parts:
        from bench.switch import sweep  # noqa: PLC0415

        table = Table(*sweep.COLUMNS)
        for row in sweep.measure():
            table.add_row(*row)
        console.print(table)
    if "spread" in options.parts:
        from bench.switch import spread  # noqa: PLC0415

        table = Table(*spread.COLUMNS)
        for row in spread.measure():
            table.add_row(*row)
        console.print(table)
    console.print(f"load of this machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


def _print_turns(options: argparse.Namespace, console: Console) -> None:
    """Print, as in Hare's table 3, the milliseconds until the end of the first layer and of the
    first iteration, and the switch's share of the latter.
    """
    for size in options.megabytes:
        for way in options.ways:
            result = turns.measure(way, size, options.switches, cuda=options.cuda)
            times = f"{1e3 * result.layer:.1f} / {1e3 * result.iteration:.1f} ms"
            console.print(
                f"{size} MB, {way}: {times} ({result.share:.0%}), {result.count} switches"
            )


def _has_gpu() -> bool:
    import torch  # noqa: PLC0415 - the other parts need no PyTorch here

    return torch.cuda.is_available()


if __name__ == "__main__":
    main()
