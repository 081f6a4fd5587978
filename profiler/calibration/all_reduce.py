"""Times all-reduces of several sizes between the tasks of a Slurm step, for `hopsctl calibrate`.

    srun ... python3 -I -c "$(cat all_reduce.py)" ADDRESS PORT PARAMETERS [PARAMETERS ...]

Rank 0, at ADDRESS, prints a JSON object: the backend, and the median seconds for each size.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

WARM_UP, REPEATS = 3, 9


def join(address: str, port: str) -> torch.device:
    """Join the process group with one GPU per task of a node, or the CPU if there are none."""
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = address, port
    gpus = torch.cuda.device_count()
    device = torch.device("cpu")
    if gpus:
        device = torch.device("cuda", int(os.environ["SLURM_LOCALID"]) % gpus)
        torch.cuda.set_device(device)
    torch.set_num_threads(1)
    dist.init_process_group(
        "nccl" if gpus else "gloo",
        rank=int(os.environ["SLURM_PROCID"]),
        world_size=int(os.environ["SLURM_NTASKS"]),
        timeout=timedelta(seconds=120),
    )
    return device


def seconds(params: int, device: torch.device) -> float:
    """Median time of an all-reduce of this many float32 values, all ranks starting together."""
    gradients = torch.zeros(params, device=device)
    times = []
    for _ in range(WARM_UP + REPEATS):
        dist.barrier()
        begin = time.perf_counter()
        dist.all_reduce(gradients)
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return statistics.median(times[WARM_UP:])


def main() -> None:
    address, port, *sizes = sys.argv[1:]
    device = join(address, port)
    times = [[int(size), seconds(int(size), device)] for size in sizes]
    if dist.get_rank() == 0:
        sys.stdout.write(json.dumps({"backend": dist.get_backend(), "measured": times}) + "\n")
        sys.stdout.flush()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
