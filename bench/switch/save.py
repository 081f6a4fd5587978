"""A training with a state of ``MEGABYTES`` that runs until asked to save and leave.

``save.py PATH MEGABYTES``; ``save.py PATH`` prints the sum of the state, as the training does.
"""

from __future__ import annotations

import sys
import time

import torch
from hops_profiler import Checkpoint

WIDTH = 1024


def main() -> None:
    if len(sys.argv) == 2:
        print(_sum(torch.load(sys.argv[1])))
        return
    count = (int(sys.argv[2]) << 20) // (4 * WIDTH * WIDTH)
    state = {f"layer{number}": torch.randn(WIDTH, WIDTH) for number in range(count)}
    checkpoint = Checkpoint(sys.argv[1], lambda: state)
    for _ in range(20):  # long enough to allocate memory, as in any training
        checkpoint.step()
        time.sleep(0.1)
    print(_sum(state), flush=True)
    while True:
        checkpoint.step()
        time.sleep(0.001)


def _sum(state: dict[str, torch.Tensor]) -> int:
    """Sum of all bits as integers, independent of order."""
    return sum(int(tensor.view(torch.int32).sum(dtype=torch.int64)) for tensor in state.values())


main()
