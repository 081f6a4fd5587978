"""Random sequences of moves: ``python -m bench.elastic.moves [--ways W ...] [--sequences 200]``.

Each training is stopped up to six times at any moment, by SIGKILL or by hops' signal, and continues
on 1 to 4 ranks. For each way of writing a training, prints how its samples, losses and final
weights differ from the unbroken run's; exits with 1 if a step has other samples, a loss differs by
more than 1e-6 or a weight by more than 1e-5.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from bench.elastic.cost import cost_rows
from bench.elastic.ranks import Ranks, Step, Training
from bench.elastic.ways import WAYS
from bench.result_file import write_result

MAX_STOPS = 6

_HEAD = "way               sequences  stops  resumed  equal      loss    weight"

LOSS, WEIGHT = 1e-6, 1e-5
"""Largest differences at which losses, and final weights, count as equal."""


@dataclass(frozen=True)
class Difference:
    """Differences of a moved training from the unbroken one; ``resumed`` runs continued a save."""

    stops: int
    resumed: int
    steps_wrong: int
    loss: float
    weight: float

    @property
    def is_the_same(self) -> bool:
        return not self.steps_wrong and self.loss <= LOSS and self.weight <= WEIGHT


def play(training: Training, source: random.Random, steps: int) -> Training:
    """Run a training of ``steps`` steps to its end, stopping it at random."""
    for _ in range(source.randint(1, MAX_STOPS)):
        number = source.choice([signal.SIGKILL, signal.SIGUSR1])
        after, extra_seconds = (
            source.choice([0, source.randint(0, steps // 2)]),
            source.uniform(0, 0.03),
        )

        def stop(
            run: Ranks,
            number: int = number,
            after: int = after,
            extra_seconds: float = extra_seconds,
        ) -> int:
            while run.steps < after and run.is_running():
                time.sleep(0.002)
            time.sleep(extra_seconds)
            return number

        if training.run(source.randint(1, 4), stop) or training.has_ended:
            return training
    training.run(source.randint(1, 4))
    return training


def compare(alone: Training, moved_training: Training) -> Difference:
    (expected_steps,) = alone.steps()
    wrong, loss, resumed_runs = 0, 0.0, 0
    noted_steps: set[tuple[int, int]] = set()
    for steps in moved_training.steps():
        resumed_runs += bool(steps) and min(number for _, number in steps) > 0
        for key, step in steps.items():
            noted_steps.add(key)
            wrong += key not in expected_steps or not _is_same_step(step, expected_steps[key])
            loss = max(
                loss, abs(step.loss - expected_steps[key].loss) if key in expected_steps else 0.0
            )
    wrong += len(set(expected_steps) - noted_steps)
    weights, expected_weights = moved_training.weights(), alone.weights()
    weight = max(
        float((weights[name] - expected_weights[name]).abs().max()) for name in expected_weights
    )
    return Difference(len(moved_training.runs) - 1, resumed_runs, wrong, loss, weight)


def _is_same_step(step: Step, expected: Step) -> bool:
    return step.ids == expected.ids


@dataclass
class Way:
    """Sequences of moves for one way of writing a training, against its unbroken run."""

    name: str
    folder: Path
    differences: list[Difference] = field(default_factory=list)
    failures: int = 0

    def __post_init__(self) -> None:
        self._alone = Training(self.folder / "alone", self.name)
        self._alone.run(1)
        (steps,) = self._alone.steps()
        self._steps = len(steps)

    def play(self, seed: int) -> None:
        """Play one sequence; if it differs, print how and leave its folder for `--keep`."""
        moved_training = Training(self.folder / str(seed), self.name)
        try:
            play(moved_training, random.Random(seed), self._steps)
            difference = compare(self._alone, moved_training)
        except (RuntimeError, ValueError) as error:
            self.failures += 1
            print(f"{self.name}, seed {seed}: ranks {moved_training.runs}: {error}", flush=True)
            return
        self.differences.append(difference)
        if difference.is_the_same:
            shutil.rmtree(moved_training.folder)
        else:
            print(
                f"{self.name}, seed {seed}: ranks {moved_training.runs}: {difference}", flush=True
            )

    @property
    def equal(self) -> int:
        return sum(difference.is_the_same for difference in self.differences)

    @property
    def plays(self) -> int:
        return len(self.differences) + self.failures

    def row(self) -> str:
        differences = self.differences
        return (
            f"{self.name:<17}{self.plays:>10}{sum(d.stops for d in differences):>7}"
            f"{sum(difference.resumed for difference in differences):>9}{self.equal:>7}"
            f"{max((difference.loss for difference in differences), default=0.0):>10.1e}"
            f"{max((difference.weight for difference in differences), default=0.0):>10.1e}"
        )


def _play_way(options: argparse.Namespace, folder: Path, began: float, name: str) -> Way:
    """Play the sequences of one way; those played until ``--seconds`` or Ctrl-C count."""
    way = Way(name, folder / name)
    with contextlib.suppress(KeyboardInterrupt):
        for seed in range(options.seed, options.seed + options.sequences):
            if time.monotonic() - began > options.seconds:
                break
            way.play(seed)
    return way


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.elastic.moves", description=__doc__)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--sequences", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="begin no sequence later"
    )
    parser.add_argument("--processes", type=int, default=1, help="ways played at a time")
    parser.add_argument("--keep", type=Path, help="folder that keeps the ranks' files")
    parser.add_argument("--write", action="store_true", help="write bench/results/elastic.md")
    options = parser.parse_args()
    began, path = time.monotonic(), os.environ["PATH"]
    with tempfile.TemporaryDirectory() as folder:
        play_way = functools.partial(_play_way, options, options.keep or Path(folder), began)
        with ProcessPoolExecutor(options.processes) as pool:
            ways = list(pool.map(play_way, options.ways))
    table = "\n".join([_HEAD, *(way.row() for way in ways)])
    print(table)
    if options.write:
        os.environ["PATH"] = path  # the ranks' PATH has no Slurm, and no git
        write_result("elastic", "Random moves of trainings", _page(table))
    return 0 if all(way.equal == way.plays for way in ways) else 1


def _page(table: str) -> str:
    """The result page: the moves, and what the order of samples costs."""
    load = os.getloadavg()[1]
    return f"""Each training of 36 steps is stopped 1 to 6 times at any moment by SIGKILL or hops'
signal, and goes on on 1 to 4 ranks (Gloo, {os.cpu_count()} cores at a load of {load:.0f}).
Equal: each step of each run has the samples of the unbroken run, losses differ by at
most {LOSS:.0e}, final weights by at most {WEIGHT:.0e}. Resumed: runs that did not begin anew.

```
{table}
```

The cost of the order of samples:

```
{chr(10).join(cost_rows())}
```

What is promised: [elastic.md](elastic.md)."""


if __name__ == "__main__":
    sys.exit(main())
