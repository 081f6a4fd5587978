"""Switch times between two trainings on a GPU: new processes, forks, and standby workers.

Measured from the end of one training's iteration to the end of the other's first layer, and of its
first iteration. The trainings (``trial.py``) record these times; CLOCK_MONOTONIC is the same
in all processes of a machine.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

TRIAL = Path(__file__).with_name("trial.py")
WAYS = ("new process", "fork", "standby, plain", "standby, pipelined", "ahead", "kept")
LOADS = {"standby, plain": "plain", "standby, pipelined": "pipelined", "ahead": "ahead",
         "kept": "ahead"}  # fmt: skip
TRIALS_WITH_MEMORY = {"standby, plain": (2, 1), "standby, pipelined": (2, 1), "ahead": (3, 2),
                      "kept": (2, 2)}  # fmt: skip
"""Number of trials that take turns, and number that fit into memory."""
RESERVED_BYTES = 128 << 20
"""Bytes that a training holds on a GPU in addition to its state, even while it waits: cuBLAS'
workspace (32 MiB on an H100) and blocks of PyTorch's allocator."""


@dataclass(frozen=True)
class Switches:
    """Medians in seconds: ``layer`` until the first layer has ended, ``iteration`` until the first
    iteration has, ``usual`` of an iteration without a switch; ``count`` is the number of switches.
    """

    layer: float
    iteration: float
    usual: float
    count: int

    @property
    def share(self) -> float:
        """The switch's share of the time until the end of the first iteration."""
        return max(0.0, 1.0 - self.usual / self.iteration)


def measure(way: str, megabytes: int, switches: int, *, cuda: bool) -> Switches:
    """Switch between trainings of models with ``megabytes`` of parameters."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:  # in memory, not on a disk
        if way in LOADS:
            events = _in_a_lane(Path(folder), way, megabytes, switches, cuda=cuda)
        else:
            events = _one_by_one(Path(folder), way, megabytes, switches, cuda=cuda)
    return _switches(events)


Event = tuple[float, str, str]
"""Time, trial, and kind: "began", "layer" or "end"."""


def _one_by_one(
    folder: Path, way: str, megabytes: int, switches: int, *, cuda: bool
) -> list[Event]:
    """Alternate trainings: each one saves and ends, and the next starts and loads its state."""
    environ = _environment(folder, cuda=cuda)
    lines = [sys.executable, str(TRIAL), str(megabytes)]
    subprocess.run([*lines, "2", "first"], env=environ, check=True)
    if way == "fork":
        code = (
            "import sys; sys.argv = ['launch', *sys.argv[1:]]\n"
            "from bench.switch.forks import main; main()"
        )
        subprocess.run(
            [sys.executable, "-c", code, str(TRIAL), str(megabytes), str(switches)],
            env=environ, check=True,
        )  # fmt: skip
        return _events(folder)
    for number in range(switches):
        note(folder, f"n{number}", "began")
        subprocess.run([*lines, "2", f"n{number}", "resume"], env=environ, check=True)
    return _events(folder)


def _in_a_lane(folder: Path, way: str, megabytes: int, switches: int, *, cuda: bool) -> list[Event]:
    trials, room = TRIALS_WITH_MEMORY[way]
    iterations = 2 * (switches // trials + 3)
    lines = [f"{TRIAL} {megabytes} {iterations} t{n}" for n in range(trials)]
    (folder / "trials").write_text("\n".join(lines))
    # Parameters and gradients of as many trials as should fit, with some slack.
    memory = int((room + 0.5) * 2 * megabytes * 2**20)
    if cuda and room == trials:
        memory += trials * RESERVED_BYTES
    subprocess.run(
        [sys.executable, "-m", "hops_profiler.lane", "trials", "--iterations=2",
         "--order=round-robin", f"--memory={memory}", f"--load={LOADS[way]}"],
        env=_environment(folder, cuda=cuda), cwd=folder, check=True, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    return _events(folder)


def _environment(folder: Path, *, cuda: bool) -> dict[str, str]:
    environ = {**os.environ, "BENCH_OUT": str(folder), "OMP_NUM_THREADS": "1"}
    return environ if cuda else {**environ, "CUDA_VISIBLE_DEVICES": ""}


def note(folder: Path, trial: str, event: str) -> None:
    with (folder / "events").open("a") as file:
        file.write(json.dumps([time.monotonic(), trial, event]) + "\n")


def _events(folder: Path) -> list[Event]:
    lines = (folder / "events").read_text().splitlines()
    return sorted((time, trial, event) for time, trial, event in map(json.loads, lines))


def _switches(events: list[Event]) -> Switches:
    """Medians over turns of two iterations; a repeated trial's first two turns are warm-up."""
    turns: list[list[Event]] = []
    for event in events:
        if not turns or turns[-1][-1][1] != event[1]:
            turns.append([])
        turns[-1].append(event)
    layers, iterations, plain_iterations = [], [], []
    order: dict[str, int] = {}
    for previous_turn, turn in itertools.pairwise(turns):
        trial = turn[0][1]
        order[trial] = order.get(trial, 0) + 1
        alone = turn[0][2] == "began"
        moments = [time for time, _, kind in turn if kind != "began"]
        if len(moments) != 4 or not (alone or order[trial] > 2):
            continue
        begin = turn[0][0] if alone else previous_turn[-1][0]
        layers.append(moments[0] - begin)
        iterations.append(moments[1] - begin)
        plain_iterations.append(moments[3] - moments[1])
    medians = [statistics.median(seconds) for seconds in (layers, iterations, plain_iterations)]
    return Switches(medians[0], medians[1], medians[2], len(layers))
