"""A data-parallel training: ``lane_ranks.py ITERATIONS``. Each rank prints the bits of its losses
and, at the end, a digest of its weights.
"""

from __future__ import annotations

import hashlib
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def say(line: str) -> None:
    """Write a line in one call: ranks share their output."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(
        nn.Sequential(nn.Linear(32, 64), nn.BatchNorm1d(64), nn.Tanh(), nn.Linear(64, 4))
    )
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    torch.manual_seed(rank)
    for _ in range(int(sys.argv[1])):
        loss = model(torch.randn(8, 32)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        say(f"{rank} {float(loss.detach()).hex()}")
    digest = hashlib.sha256()
    for tensor in model.state_dict().values():
        digest.update(tensor.numpy().tobytes())
    say(f"{rank} {digest.hexdigest()}")
    dist.destroy_process_group()


main()
