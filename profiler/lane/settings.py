"""The command line of a lane."""

from __future__ import annotations

import argparse
import os
import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hops_profiler.lane.order import HARE, POLICIES, ROUND_ROBIN

OUT_OF_MEMORY = 79
"""Exit code of a trial that ran out of memory, which then runs again, alone on the GPU."""

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""Signals at which a lane lets its trials save, and ends."""

LOADS = ("ahead", "pipelined", "plain")

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


@dataclass(frozen=True)
class Settings:
    """``width``: trials that take turns on a GPU. ``standby``: workers forked in advance. A turn
    lasts ``turn`` seconds, or ``iterations`` if those are above 0. ``memory``, ``host_memory``:
    bytes for the trials' states on a GPU (0: what is free) and on its host. ``grace``: seconds to
    save. ``load`` says when a state is loaded: before its turn ("ahead"), layer by layer during it
    ("pipelined"), or completely at its beginning ("plain"). ``order`` of turns: see :mod:`order`.
    """

    trials: Path
    output: Path
    width: int = 3
    standby: int = 3
    turn: float = 1.0
    iterations: int = 0
    memory: int = 0
    host_memory: int = 0
    grace: float = 25.0
    load: str = "ahead"
    order: str = HARE


def parse(arguments: Sequence[str] | None = None) -> Settings:
    """Read the command line; exit with code 2 and a message if it is wrong."""
    values = parser().parse_args(arguments)
    half = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    return Settings(
        trials=values.trials,
        output=values.output or Path(f"{values.trials}.lane"),
        width=values.width,
        standby=values.standby,
        turn=values.turn,
        iterations=values.iterations,
        memory=values.memory,
        host_memory=values.host_memory or half,
        grace=values.grace,
        load=values.load,
        order=values.order,
    )


def parser() -> argparse.ArgumentParser:
    """Make the parser of hops-lane's command line."""
    result = argparse.ArgumentParser(
        prog="hops-lane",
        description="Run many trainings on the GPUs of one job, in turns.",
        epilog="A lane that starts again leaves out the trials that have ended.",
    )
    add = result.add_argument
    add("trials", type=Path, metavar="FILE", help="one command per line: train.py --lr 0.1")
    add("--output", type=Path, metavar="DIR", help="logs and journal; default: FILE.lane")
    add("--width", type=_count, default=3, metavar="N", help="trials that take turns; default 3")
    add("--standby", type=_count, default=3, metavar="N", help="workers in advance; default 3")
    add("--turn", type=_seconds, default=1.0, metavar="SECONDS", help="length of a turn; default 1")
    add("--iterations", type=_count, default=0, metavar="N", help="length of a turn, instead")
    add("--memory", type=size, default=0, metavar="BYTES", help="GPU memory for states, as 20G")
    add(
        "--host-memory", type=size, default=0, metavar="BYTES", help="default: half of what is free"
    )
    add("--grace", type=_seconds, default=25.0, metavar="SECONDS", help="to save; default 25")
    add(
        "--order", choices=(*POLICIES, ROUND_ROBIN), default=HARE, metavar=f"{HARE}|{ROUND_ROBIN}",
        help="of turns; default: the shortest remaining training first, if lengths are known",
    )  # fmt: skip
    add("--load", choices=LOADS, default="ahead", help="a state: ahead of its turn, or within it")
    return result


def size(text: str) -> int:
    """Parse bytes: ``1000``, ``512M``, ``20G``, in powers of 1024."""
    match = re.fullmatch(r"(\d{1,15})([KMGT]?)(i?B)?", text.strip(), re.IGNORECASE)
    if not match or not int(match.group(1)):
        raise argparse.ArgumentTypeError(f"{text!r}: write bytes such as 512M or 20G")
    return int(match.group(1)) * _UNITS[match.group(2).upper()]


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= 10**9):
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.0 < value <= 1e6:
        raise argparse.ArgumentTypeError(f"{text!r}: write seconds above 0")
    return value
