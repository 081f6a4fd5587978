"""Stand-in for a script's own training: a short one that saves and continues from its last save."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch

STEPS, STEPS_PER_SAVE, PACE = 100, 20, 0.05


def main() -> None:
    """Note at which step the run began and which step it reached; print nothing."""
    job, folder = os.environ["SLURM_JOB_ID"], Path(os.environ["NOTES"])
    name = sys.argv[1] if len(sys.argv) > 1 else "0"
    path = folder / f"save.{job}.{name}"
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    step = 0
    if path.exists():
        state = torch.load(path)
        step = state["step"]
        model.load_state_dict(state["model"])
    with (folder / f"steps.{job}").open("a") as notes:
        notes.write(f"from {step} {name}\n")
    while step < STEPS:
        optimizer.zero_grad()
        model(torch.randn(16, 8)).pow(2).mean().backward()
        optimizer.step()
        step += 1
        time.sleep(PACE)
        if step % STEPS_PER_SAVE == 0:
            partial = path.with_name(f"{path.name}.partial")
            torch.save({"step": step, "model": model.state_dict()}, partial)
            partial.replace(path)
    with (folder / f"steps.{job}").open("a") as notes:
        notes.write(f"to {step}\n")


main()
