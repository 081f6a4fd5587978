"""FSDP2 with checkpoints by torch.distributed.checkpoint: each rank saves its part, and any number
of ranks can load them.
"""

import argparse
import os
from typing import Any

import hops_profiler
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=2000)
parser.add_argument("--checkpoint", default="fsdp2-run", help="a folder that all nodes share")
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
mesh = init_device_mesh(device.type, (ranks,))
for layer in model:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
step = 0


def state() -> dict[str, Any]:
    weights, moments = get_state_dict(model, optimizer)
    return {"model": weights, "optimizer": moments, "step": torch.tensor(step)}


checkpoint = hops_profiler.ShardedCheckpoint(options.checkpoint, state, every=600)
if saved := checkpoint.load():
    set_state_dict(
        model, optimizer, model_state_dict=saved["model"], optim_state_dict=saved["optimizer"]
    )
    step = int(saved["step"])

while step < options.steps:
    # Seeded by the step and split among the ranks: the same samples on any number of GPUs.
    draw = torch.Generator().manual_seed(step)
    rows = torch.randint(len(inputs), (GLOBAL_BATCH,), generator=draw)
    mine = rows[rank::ranks]
    loss = cross_entropy(model(inputs[mine].to(device)), labels[mine].to(device))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    step += 1
    if step % 20 == 0 and rank == 0:
        print(f"step {step} on {ranks} GPUs: loss {loss.item():.4f}", flush=True)
    checkpoint.step()  # on hops' signal, saves and does not return
checkpoint.save()
checkpoint.wait()
dist.destroy_process_group()
