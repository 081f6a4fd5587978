"""Runs out of memory at iteration ARGV[1] ("never": not at all); ARGV[2] says how it ends."""

import sys

import torch
from common import network

iteration, mode = sys.argv[1:]
model = network()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
try:
    for number in range(3):
        if str(number) == iteration:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        model(torch.rand(4, next(model.parameters()).shape[1])).sum().backward()
        optimizer.step()
except RuntimeError as error:
    if mode == "chained":
        raise ValueError("the training failed") from error
    if mode == "uncaught":
        raise
