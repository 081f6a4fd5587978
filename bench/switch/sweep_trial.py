"""``sweep_trial.py ITERATIONS FOLDER``: a training that records its end and the total time of its
iterations, without waits in a lane.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import torch

ITERATION_SECONDS = 0.1


def main() -> None:
    count, folder = int(sys.argv[1]), Path(sys.argv[2])
    model = torch.nn.Linear(256, 256)
    optimizer = torch.optim.Adam(model.parameters())
    seconds = began = 0.0

    def end(*_: object) -> None:
        nonlocal seconds
        seconds += time.monotonic() - began

    optimizer.register_step_post_hook(end)  # runs before the lane's own
    for _ in range(count):
        began = time.monotonic()
        time.sleep(ITERATION_SECONDS)
        optimizer.zero_grad()
        model(torch.ones(8, 256)).square().mean().backward()
        optimizer.step()
    new = folder / f"new.{os.getpid()}"
    new.write_text(json.dumps([time.monotonic(), seconds]))
    new.rename(folder / f"ended.{os.getpid()}")


main()
