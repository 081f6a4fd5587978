"""Two ranks that train together and then hang, each time in another way: `hangs.py KIND`."""

import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
kind, rank = sys.argv[1], dist.get_rank()
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), 0.1)


def train(steps: int) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(4, 8)).sum().backward()
        optimizer.step()
        time.sleep(0.02)


def evaluate(seconds: float) -> None:
    """Sleeps, as where it waits for another machine's answer."""
    time.sleep(seconds)


train(50)
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
