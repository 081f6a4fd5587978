"""A training whose activations take over half of a GPU: ``gpu_large.py ITERATIONS``."""

from __future__ import annotations

import sys

import torch
from torch import nn

layer = nn.Linear(8, 8).cuda()
optimizer = torch.optim.SGD(layer.parameters(), 0.1)
PIECES = 12  # a cuBLAS workspace inside a segment prevents PyTorch from releasing it
size = int(0.6 * torch.cuda.mem_get_info()[1]) // PIECES
for _ in range(int(sys.argv[1])):
    blocks = [torch.zeros(size, dtype=torch.uint8, device="cuda") for _ in range(PIECES)]
    loss = layer(torch.randn(8, 8, device="cuda")).square().mean() + blocks[0][:8].float().mean()
    del blocks
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print("done", flush=True)
