"""A small data-parallel training that records the end of its first iteration.

CLOCK_MONOTONIC is the same in all processes of a machine.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Sequential(nn.Linear(256, 512), nn.Linear(512, 10)))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(32, 256)).square().mean().backward()
    optimizer.step()
    if dist.get_rank() == 0:
        Path(os.environ["BENCH_OUT"]).write_text(repr(time.monotonic()))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
