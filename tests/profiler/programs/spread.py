"""Data-parallel on two ranks; the second one is slow in the forward pass."""

import time

import torch
import torch.distributed as dist
from common import BATCH, dataset, network, show
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

dist.init_process_group("gloo")
model = DistributedDataParallel(network())
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
sampler = DistributedSampler(dataset(), shuffle=False)
for number, (features, labels) in enumerate(
    DataLoader(dataset(), batch_size=BATCH, sampler=sampler)
):
    if dist.get_rank() == 1 and number % 2:
        time.sleep(0.04)
    loss = cross_entropy(model(features), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    total = loss.detach().clone()
    dist.all_reduce(total)
    if dist.get_rank() == 0:
        show(total)
dist.destroy_process_group()
