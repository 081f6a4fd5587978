"""Two ranks that train together and then hang, in a way that depends on KIND: `hangs.py KIND`.

They save their step and resume from it; a run after a requeue does not hang again.
"""

import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
kind, rank = sys.argv[1], dist.get_rank()
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
save = Path(f"{os.environ['SLURM_JOB_ID']}.step")
first_step = int(save.read_text()) if save.exists() else 0
print(f"rank {rank} goes on from step {first_step}", flush=True)


def train(steps: int) -> None:
    for step in range(first_step, first_step + steps):
        optimizer.zero_grad()
        model(torch.randn(4, 8)).sum().backward()
        optimizer.step()
        time.sleep(0.02)
        if rank == 0 and step % 10 == 9:
            save.write_text(str(step + 1))


def evaluate(seconds: float) -> None:
    """Sleep, like a rank that waits for another machine's answer."""
    time.sleep(seconds)


train(50)
if os.environ.get("SLURM_RESTART_COUNT", "0") != "0":
    kind = "none"
if kind == "stopped" and rank == 1:
    os.kill(os.getpid(), signal.SIGSTOP)
elif kind == "deadlock":
    if rank == 0:
        dist.all_reduce(torch.ones(3))
    else:
        dist.recv(torch.ones(3), 0)
elif kind == "evaluation" and rank == 0:
    evaluate(600.0)
train(1_000_000)
