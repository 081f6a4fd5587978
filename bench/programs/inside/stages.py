"""Two ranks on CPUs without a loader: ``interleaved`` (two stages of a pipeline each) or ``shards``
(FSDP2 that accumulates four batches and synchronises gradients after the last one).
"""

import sys

import hand_clock
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, ScheduleInterleaved1F1B
from torch.nn.functional import cross_entropy

KIND, BATCH, WIDTH = sys.argv[1], 16, 256
dist.init_process_group("gloo")
rank, world, device = dist.get_rank(), dist.get_world_size(), torch.device("cpu")
torch.manual_seed(rank * (KIND == "shards"))
layers = [torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU()) for _ in range(4)]


def batch():
    return torch.randn(BATCH, WIDTH), torch.randint(WIDTH, (BATCH,))


if KIND == "interleaved":
    numbers = rank, rank + world
    stages = [PipelineStage(layers[n], n, 2 * world, device) for n in numbers]
    schedule = ScheduleInterleaved1F1B(stages, 4, loss_fn=cross_entropy)
    optimizer = torch.optim.Adam([p for n in numbers for p in layers[n].parameters()])
    while True:
        features, labels = batch()
        optimizer.zero_grad()
        schedule.step(*[features] * (rank == 0), **{"target": labels} if rank == world - 1 else {})
        optimizer.step()
        hand_clock.step(BATCH / world)
model = torch.nn.Sequential(*layers)
for layer in [*layers, model]:
    fully_shard(layer)
optimizer = torch.optim.Adam(model.parameters())
while True:
    optimizer.zero_grad()
    for number in range(4):
        features, labels = batch()
        model.set_requires_gradient_sync(number == 3)
        cross_entropy(model(features), labels).backward()
    optimizer.step()
    hand_clock.step(4 * BATCH)
