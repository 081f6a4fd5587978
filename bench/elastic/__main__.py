"""``python -m bench.elastic``: loss over five moves beside the unbroken run, and the costs.

The picture goes to docs/img/elastic.svg. Random moves: ``python -m bench.elastic.moves``.
"""

from __future__ import annotations

import argparse
import signal
import tempfile
import time
from pathlib import Path

import torch

from bench.elastic.cost import cost_rows
from bench.elastic.moves import compare
from bench.elastic.plot import draw
from bench.elastic.ranks import Ranks, Training
from bench.elastic.scaled import scaled_losses

RUNS = (1, 2, 4, 3, 1, 2)
"""Ranks before and after each of the five moves."""

STEPS_PER_RUN = 60
"""Steps between moves."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.elastic", description=__doc__)
    parser.add_argument("--plot", type=Path, default=Path("docs/img/elastic.svg"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        alone = Training(Path(folder) / "alone", "example")
        alone.run(1)
        moved_training = Training(Path(folder) / "moved", "example")
        for ranks in RUNS[:-1]:
            moved_training.run(ranks, _leave)
        moved_training.run(RUNS[-1])
        difference = compare(alone, moved_training)
        (expected_losses,) = [
            [step.loss for _, step in sorted(steps.items())] for steps in alone.steps()
        ]
        runs = [
            (ranks, {number: step.loss for (_, number), step in steps.items()})
            for ranks, steps in zip(moved_training.runs, moved_training.steps(), strict=True)
        ]
    changes = [min(losses) for _, losses in runs]
    scaled_curve = scaled_losses(
        list(zip(changes, moved_training.runs, strict=True)), len(expected_losses)
    )
    draw(options.plot, expected_losses, runs, scaled_curve)
    print(f"moves                      {len(runs) - 1}, over {len(expected_losses)} steps")
    print(f"steps of other samples     {difference.steps_wrong}")
    print(f"largest loss difference    {difference.loss:.1e}")
    print(f"largest weight difference  {difference.weight:.1e}")
    print("\n".join(cost_rows()))


def _leave(run: Ranks) -> int:
    while run.steps < STEPS_PER_RUN and run.is_running():
        time.sleep(0.002)
    return signal.SIGUSR1


if __name__ == "__main__":
    main()
