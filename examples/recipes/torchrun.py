"""DistributedDataParallel under torchrun: the same training on any number of GPUs.

torchrun ends on SIGUSR1, so the batch script, torchrun.sh, creates a file instead.
"""

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=2000)
parser.add_argument("--checkpoint", type=Path, default=Path("torchrun.pt"))
parser.add_argument("--stop", type=Path, help="save and end once this file exists")
options = parser.parse_args()

GLOBAL_BATCH = 256  # a multiple of every GPU count in the comment

if torch.cuda.is_available():
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
else:
    device = torch.device("cpu")
dist.init_process_group()
rank, ranks = dist.get_rank(), dist.get_world_size()

torch.manual_seed(1)
inputs, labels = torch.randn(4096, 64), torch.randint(10, (4096,))
model = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
model.to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
step = 0
if options.checkpoint.exists():
    state = torch.load(options.checkpoint, map_location=device)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    step = state["step"]
parallel = DistributedDataParallel(model)


def save() -> None:
    """Write atomically: the job may be killed meanwhile."""
    if rank == 0:
        partial = options.checkpoint.with_suffix(".partial")
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        torch.save(state, partial)
        partial.replace(options.checkpoint)
    dist.barrier()


def should_stop() -> bool:
    """Whether to stop; all ranks get the same answer."""
    stop_exists = rank == 0 and options.stop is not None and options.stop.exists()
    answer = torch.tensor(int(stop_exists), device=device)
    dist.broadcast(answer, 0)
    return bool(answer.item())


while step < options.steps:
    # Seeded by the step and split among the ranks: the same samples on any number of GPUs.
    draw = torch.Generator().manual_seed(step)
    rows = torch.randint(len(inputs), (GLOBAL_BATCH,), generator=draw)
    mine = rows[rank::ranks]
    loss = cross_entropy(parallel(inputs[mine].to(device)), labels[mine].to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step += 1
    if step % 20 == 0:
        if rank == 0:
            print(f"step {step} on {ranks} GPUs: loss {loss.item():.4f}", flush=True)
        if should_stop():
            break
    if step % 500 == 0:
        save()
save()
dist.destroy_process_group()
