"""The other way: the same number of samples per GPU on any number of GPUs, with a scaled rate."""

from __future__ import annotations

from collections.abc import Sequence

import hops_profiler
import torch
from torch.nn.functional import cross_entropy

from bench.elastic.ways.example import models

PER_GPU = 32


def scaled_losses(changes: Sequence[tuple[int, int]], steps: int) -> list[tuple[float, float]]:
    """The loss of each step, with the number of ``PER_GPU`` batches that had been read before it.
    ``changes`` has pairs: from which such batch on, and the number of GPUs. ``lr_rule=linear``.
    """
    example = models()["mlp"]
    torch.manual_seed(1)
    model = example.build()
    optimizer = torch.optim.SGD(model.parameters(), lr=example.lr, momentum=0.9)
    features, labels = example.dataset().tensors
    loader = hops_profiler.ElasticLoader(range(len(labels)), PER_GPU, epochs=100, seed=5)
    batches = (batch for step in loader.steps() for batch, _ in step)
    losses: list[tuple[float, float]] = []
    samples_done = 0
    while samples_done < steps:
        gpus = [count for start, count in changes if start <= samples_done][-1]
        ids = torch.cat([next(batches) for _ in range(gpus)])
        for group in optimizer.param_groups:
            group["lr"] = hops_profiler.scaled(example.lr, gpus)
        loss = cross_entropy(model(features[ids]), labels[ids])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append((samples_done, loss.item()))
        samples_done += gpus
    return losses
