"""Ranks on CPUs: ``ddp``, ``fsdp2``, ``deepspeed`` (ZeRO 1), ``tensor`` or ``pipeline``."""

import sys

import hand_clock
import tiny
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

KIND, BATCH = sys.argv[1], 32
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
rows, lossy = tiny.rows(32 * 200), torch.nn.functional.cross_entropy
model = tiny.network(width=512)
share = 1
if KIND == "ddp":
    model = torch.nn.parallel.DistributedDataParallel(model)
elif KIND == "fsdp2":
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (world,))
    for layer in model:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
elif KIND == "tensor":
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    share = world
    parallelize_module(
        model,
        init_device_mesh("cpu", (world,)),
        {"0": ColwiseParallel(), "2": RowwiseParallel()},
    )
if KIND == "pipeline":
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    middle_layers = [torch.nn.Linear(512, 512) for _ in range(world - 2)]
    part = [model[:2], *middle_layers, model[2:]][rank]
    stage = PipelineStage(part, rank, world, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, 4, loss_fn=lossy)
    optimizer = torch.optim.Adam(part.parameters())
    for features, labels in DataLoader(rows, batch_size=BATCH):
        optimizer.zero_grad()
        if rank == 0:
            schedule.step(features)
        elif rank == world - 1:
            schedule.step(target=labels)
        else:
            schedule.step()
        optimizer.step()
        hand_clock.step(BATCH / world)
elif KIND == "deepspeed":
    import deepspeed

    engine, _, loader, _ = deepspeed.initialize(
        model=model,
        model_parameters=model.parameters(),
        training_data=rows,
        config={
            "train_micro_batch_size_per_gpu": BATCH,
            "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}},
            "zero_optimization": {"stage": 1},
        },
    )
    for features, labels in loader:
        engine.backward(lossy(engine(features), labels))
        engine.step()
        hand_clock.step(BATCH)
else:
    optimizer = torch.optim.Adam(model.parameters())
    sampler = None if KIND == "tensor" else DistributedSampler(rows)
    for features, labels in DataLoader(rows, batch_size=BATCH, sampler=sampler):
        optimizer.zero_grad()
        lossy(model(features), labels).backward()
        optimizer.step()
        hand_clock.step(BATCH / share)
dist.destroy_process_group()
