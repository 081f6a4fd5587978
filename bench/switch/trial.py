"""A training of ``MEGABYTES`` of parameters that notes the ends of its first layer and iterations.

``trial.py MEGABYTES ITERATIONS NAME [resume]``: with ``resume`` it first loads the saved state.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import torch
from torch import nn

WIDTH = 1024
MODEL = 4 * WIDTH * WIDTH
"""Bytes of one layer's weight."""


def main() -> None:
    megabytes, iterations, name = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    folder = Path(os.environ["BENCH_OUT"])
    events = os.open(folder / "events", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(event: str) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        os.write(events, (json.dumps([time.monotonic(), name, event]) + "\n").encode())

    device = "cuda" if torch.cuda.is_available() else "cpu"
    layers = [nn.Linear(WIDTH, WIDTH) for _ in range(max(1, (megabytes << 20) // MODEL))]
    model = nn.Sequential(*layers).to(device)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    checkpoint_path = folder / "saved"
    if "resume" in sys.argv:
        model.load_state_dict(torch.load(checkpoint_path, map_location=device))
    elif name == "first":
        torch.save(model.state_dict(), checkpoint_path)
    layers[0].register_forward_hook(lambda *_: note("layer"))
    # Runs before the lane's own hook, so before the gate.
    optimizer.register_step_post_hook(lambda *_: note("end"))
    data = torch.randn(4, WIDTH, device=device)
    for _ in range(iterations):
        loss = model(data).square().mean()
        optimizer.zero_grad()  # here, since freeing gradients is no part of a switch
        loss.backward()
        optimizer.step()


main()
