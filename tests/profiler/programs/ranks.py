"""Ranks: ``local`` (a model that only a function holds, with the second rank always late),
``tensor``, ``sequence``, ``pipeline``, ``dispatch`` (one rank reads for both), or stages of a
pipeline without PyTorch's help: ``stages`` (both read each batch) and ``stages_without_loader``."""

import json
import sys
import time
from typing import Any

import torch
import torch.distributed as dist
from common import BATCH, FEATURES, dataset, network
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, DistributedSampler

WIDE = 40_000
TIMED_ITERATIONS = [*range(2, 10), *range(13, 40, 7)]
"""Iterations whose times DistributedDataParallel keeps."""

dist.init_process_group("gloo")
kind, rank, world = sys.argv[1], dist.get_rank(), dist.get_world_size()


def local() -> None:
    """Print each rank's wait for the last one and the communication time, measured around the
    all-reduces."""
    layers = nn.Sequential(network(), *(nn.Linear(4, 4) for _ in range(3)))
    layers[1] = nn.Linear(4, 4 * WIDE)
    layers[2] = nn.Linear(4 * WIDE, 4)
    model = nn.parallel.DistributedDataParallel(layers, bucket_cap_mb=0.2)
    begin_times: list[float] = []
    end_times: list[float] = []

    def timed_hook(_: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        if bucket.index() == 0:
            begin_times.append(time.time())
        gradients = bucket.buffer().div_(world)

        def note_end(future: Any) -> Any:
            if bucket.is_last():
                end_times.append(time.time())
            return future.value()[0]

        return dist.all_reduce(gradients, async_op=True).get_future().then(note_end)

    model.register_comm_hook(None, timed_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    rows = dataset(world * 40)
    sampler = DistributedSampler(rows, shuffle=False)
    for features, labels in DataLoader(rows, batch_size=BATCH, sampler=sampler):
        if rank == 1:
            time.sleep(0.04)
        optimizer.zero_grad()
        cross_entropy(model(features), labels).backward()
        optimizer.step()
    spans = torch.tensor([begin_times, end_times], dtype=torch.float64)[:, TIMED_ITERATIONS]
    spans_by_rank = [torch.empty_like(spans) for _ in range(world)]
    dist.all_gather(spans_by_rank, spans)
    if rank == 0:
        last = torch.stack([spans[0] for spans in spans_by_rank]).amax(0)
        means = [
            [float((last - begin_times).mean()), float((end_times - last).mean())]
            for begin_times, end_times in spans_by_rank
        ]
        print(json.dumps(means))


def tensor() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    plan = {"0": ColwiseParallel(), "3": RowwiseParallel()}
    model = nn.Sequential(nn.Linear(FEATURES, 128), nn.ReLU(), nn.Identity(), nn.Linear(128, 4))
    parallelize_module(model, init_device_mesh("cpu", (world,)), plan)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for features, labels in DataLoader(dataset(), batch_size=BATCH):
        optimizer.zero_grad()
        cross_entropy(model(features), labels).backward()
        optimizer.step()


def sequence() -> None:
    """The ranks share layers; each feeds them its own rows."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    rows = Shard(0)
    plan = {"0": ColwiseParallel(input_layouts=rows), "2": RowwiseParallel(output_layouts=rows)}
    model = nn.Sequential(nn.Linear(FEATURES, 128), nn.ReLU(), nn.Linear(128, 4))
    parallelize_module(model, init_device_mesh("cpu", (world,)), plan)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for _ in range(40):
        optimizer.zero_grad()
        model(torch.randn(BATCH, FEATURES)).square().mean().backward()
        optimizer.step()


def pipeline() -> None:
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    layers = network()
    part = layers[:2] if rank == 0 else layers[2:]
    stage = PipelineStage(part, rank, world, torch.device("cpu"))
    # As many parts as ranks, so that a part looks like a rank's share of what one rank reads for
    # all.
    schedule = ScheduleGPipe(stage, world, loss_fn=cross_entropy)
    optimizer = torch.optim.SGD(part.parameters(), lr=1e-2)
    for features, labels in DataLoader(dataset(), batch_size=BATCH):
        optimizer.zero_grad()
        _ = schedule.step(features) if rank == 0 else schedule.step(target=labels)
        optimizer.step()


def stages() -> None:
    """Each stage splits a batch into two parts per step, and sends what the other one needs."""
    train_stages(DataLoader(dataset(), batch_size=BATCH // 2))


def stages_without_loader() -> None:
    train_stages([(torch.randn(BATCH // 2, FEATURES), torch.zeros(BATCH // 2).long())] * 80)


def train_stages(batches: Any) -> None:
    torch.manual_seed(rank)
    model = nn.Linear(FEATURES, 32) if rank == 0 else nn.Linear(32, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for number, (features, labels) in enumerate(batches):
        hidden = torch.empty(BATCH // 2, 32)
        if rank == 0:
            hidden = model(features)
            dist.send(hidden.detach(), 1)
            gradients = torch.empty_like(hidden)
            dist.recv(gradients, 1)
            torch.autograd.backward(hidden, gradients)
        else:
            dist.recv(hidden, 0)
            cross_entropy(model(hidden.requires_grad_()), labels).backward()
            dist.send(hidden.grad, 0)
        if number % 2:
            optimizer.step()
            optimizer.zero_grad()


def dispatch() -> None:
    model = nn.parallel.DistributedDataParallel(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    batches = iter(DataLoader(dataset(2 * 40), batch_size=BATCH))
    for _ in range(40):
        mine = torch.empty(BATCH, FEATURES)
        parts = [next(batches)[0] for _ in range(world)] if rank == 0 else None
        dist.scatter(mine, parts)
        optimizer.zero_grad()
        model(mine).square().mean().backward()
        optimizer.step()


programs = {"local": local, "tensor": tensor, "sequence": sequence, "pipeline": pipeline}
programs |= {"stages": stages, "stages_without_loader": stages_without_loader}
(programs | {"dispatched": dispatch})[kind]()
dist.destroy_process_group()
