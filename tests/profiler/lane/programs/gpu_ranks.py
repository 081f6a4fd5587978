"""A training with several ranks that requests NCCL: ``gpu_ranks.py ITERATIONS``."""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
torch.use_deterministic_algorithms(True)
rank = int(os.environ["RANK"])
dist.init_process_group("nccl")
torch.manual_seed(0)
layers = nn.Sequential(
    nn.Linear(64, 2048), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 4)
).cuda()
model = DistributedDataParallel(layers)
optimizer = torch.optim.AdamW(model.parameters())
torch.manual_seed(1 + rank)
for _ in range(int(sys.argv[1])):
    loss = model(torch.randn(64, 64, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    os.write(1, f"{rank} {float(loss.detach()).hex()}\n".encode())  # in one piece
dist.destroy_process_group()
