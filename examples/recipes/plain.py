"""A plain loop on one GPU: saves when Slurm asks, and resumes from there. Does not import hops."""

import argparse
import os
import signal
import subprocess
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=2000)
parser.add_argument("--checkpoint", type=Path, default=Path("plain.pt"))
options = parser.parse_args()

save_requested = False


def request_save(*_: object) -> None:
    global save_requested  # noqa: PLW0603 - a signal handler should only set a flag
    save_requested = True


signal.signal(signal.SIGUSR1, request_save)

torch.manual_seed(1)
device = "cuda" if torch.cuda.is_available() else "cpu"
inputs, labels = torch.randn(4096, 64), torch.randint(10, (4096,))
model = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
model.to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
step = 0


def save() -> None:
    """Write atomically: the job may be killed meanwhile."""
    partial = options.checkpoint.with_suffix(".partial")
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
    torch.save(state, partial)
    partial.replace(options.checkpoint)


if options.checkpoint.exists():
    state = torch.load(options.checkpoint, map_location=device)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    step = state["step"]

while step < options.steps:
    # Seeded by the step: the next run draws the samples that this one would have drawn.
    draw = torch.Generator().manual_seed(step)
    rows = torch.randint(len(inputs), (256,), generator=draw)
    loss = cross_entropy(model(inputs[rows].to(device)), labels[rows].to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step += 1
    if step % 20 == 0:
        print(f"step {step} on 1 GPUs: loss {loss.item():.4f}", flush=True)
    if save_requested or step % 500 == 0:
        save()
    if save_requested:
        subprocess.run(["scontrol", "requeue", os.environ["SLURM_JOB_ID"]], check=True)
        signal.pause()  # until Slurm ends this run
save()
