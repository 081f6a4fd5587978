"""Train one of the networks, data-parallel, for ITERATIONS: ``train.py NAME ITERATIONS``.

A plain loop, except for the line that slows it down to the speed of its device.
"""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
from device import compute_here
from networks import NETWORKS
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    name, iterations = sys.argv[1], int(sys.argv[2])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    compute_here()
    network = NETWORKS[name]
    # The default of 25 MB would hold all gradients of networks this small, so that none of their
    # communication could overlap with the backward pass.
    model = DistributedDataParallel(network.build(), bucket_cap_mb=0.25)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    rows = network.batch * 16
    data = TensorDataset(network.sample(rows), torch.randint(10, (rows,)))
    iteration = 0
    while iteration < iterations:
        for features, labels in DataLoader(data, batch_size=network.batch):
            optimizer.zero_grad()
            cross_entropy(model(features), labels).backward()
            optimizer.step()
            iteration += 1
            if iteration == iterations:
                break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
