"""Random sequences of moves: ``python -m bench.elastic.moves [--sequences 200] [--seed 0]``.

Each training is stopped up to six times at any moment, by SIGKILL or hops' signal, and goes on on 1
to 4 ranks. Prints how its samples, losses and final weights differ from the unbroken run's; ends
with 1 if a step has other samples, a loss differs by more than 1e-6 or a weight by more than 1e-5.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from bench.elastic.ranks import Run, Step, Training

OPTIONS = ("--samples", "350", "--global-batch", "32", "--micro-batch", "5", "--every", "0.02")
MOST_STOPS = 6


@dataclass(frozen=True)
class Difference:
    """Of a moved training from the unbroken one."""

    stops: int
    steps_wrong: int
    loss: float
    weight: float

    @property
    def is_the_same(self) -> bool:
        return not self.steps_wrong and self.loss <= 1e-6 and self.weight <= 1e-5


def play(folder: Path, source: random.Random) -> Training:
    """A training to its end, stopped at random."""
    training = Training(folder, OPTIONS)
    for _ in range(source.randint(1, MOST_STOPS)):
        number = source.choice([signal.SIGKILL, signal.SIGUSR1])
        steps, more = source.choice([0, source.randint(0, 20)]), source.uniform(0, 0.03)

        def stop(run: Run, number: int = number, steps: int = steps, more: float = more) -> int:
            while run.steps < steps and run.is_running():
                time.sleep(0.002)
            time.sleep(more)
            return number

        if training.run(source.randint(1, 4), stop):
            return training
    training.run(source.randint(1, 4))
    return training


def compare(alone: Training, moved: Training) -> Difference:
    (wanted,) = alone.steps()
    wrong, loss = 0, 0.0
    done: set[tuple[int, int]] = set()
    for steps in moved.steps():
        for key, step in steps.items():
            done.add(key)
            wrong += key not in wanted or not _same(step, wanted[key])
            loss = max(loss, abs(step.loss - wanted[key].loss) if key in wanted else 0.0)
    wrong += len(set(wanted) - done)
    ours, theirs = moved.weights(), alone.weights()
    weight = max(float((ours[name] - theirs[name]).abs().max()) for name in theirs)
    return Difference(len(moved.runs) - 1, wrong, loss, weight)


def _same(step: Step, wanted: Step) -> bool:
    return step.ids == wanted.ids


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sequences", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        alone = Training(Path(folder) / "alone", OPTIONS)
        alone.run(1)
        differences = []
        for number in range(options.sequences):
            source = random.Random(options.seed + number)
            moved = play(Path(folder) / str(number), source)
            differences.append(compare(alone, moved))
            if not differences[-1].is_the_same:
                print(f"seed {options.seed + number}: ranks {moved.runs}: {differences[-1]}")
    print(f"sequences             {len(differences)}")
    print(f"stops                 {sum(one.stops for one in differences)}")
    print(f"steps of other samples {sum(one.steps_wrong for one in differences)}")
    print(f"largest loss difference   {max(one.loss for one in differences):.1e}")
    print(f"largest weight difference {max(one.weight for one in differences):.1e}")
    return 0 if all(one.is_the_same for one in differences) else 1


if __name__ == "__main__":
    sys.exit(main())
