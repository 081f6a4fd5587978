"""A short training with PyTorch that saves, and goes on from its last save: the stand-in for a script's own."""

from __future__ import annotations

import os
import sys
import time

import torch

STEPS, EVERY, PACE = 100, 20, 0.05


def main() -> None:
    """Prints its steps' numbers to the notes, not to the script's output."""
    job = os.environ["SLURM_JOB_ID"]
    folder = os.environ["NOTES"]
    path = f"{folder}/save.{job}.{sys.argv[1] if len(sys.argv) > 1 else 0}"
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    step = 0
    if os.path.exists(path):
        saved = torch.load(path)
        step = saved["step"]
        model.load_state_dict(saved["model"])
    with open(f"{folder}/steps.{job}", "a") as notes:
        notes.write(f"from {step}\n")
    while step < STEPS:
        optimizer.zero_grad()
        model(torch.randn(16, 8)).pow(2).mean().backward()
        optimizer.step()
        step += 1
        time.sleep(PACE)
        if step % EVERY == 0:
            torch.save({"step": step, "model": model.state_dict()}, f"{path}.new")
            os.replace(f"{path}.new", path)
    with open(f"{folder}/steps.{job}", "a") as notes:
        notes.write(f"to {step}\n")


main()
