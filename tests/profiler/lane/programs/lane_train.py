"""Small trainings of all kinds that must not notice a lane: ``lane_train.py ITERATIONS KIND ...``.

Prints every loss and, at the end, a digest of the weights, so that two runs can be compared.
"""

from __future__ import annotations

import hashlib
import sys

import torch
from torch import nn


def train(kind: str, iterations: int) -> None:
    torch.manual_seed(0)
    middle = nn.BatchNorm1d(256) if kind == "batchnorm" else nn.ReLU()
    model = nn.Sequential(nn.Linear(64, 256), middle, nn.Dropout(0.1), nn.Linear(256, 4))
    model[0].weight.tied = model[0].weight  # type: ignore[attr-defined]
    if kind == "sgd":
        optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    else:
        optimizer = torch.optim.Adam(model.parameters())
    for _ in range(iterations):
        for _ in range(3 if kind == "accumulate" else 1):
            with torch.autocast("cpu", torch.bfloat16, enabled=kind == "amp"):
                loss = model(torch.randn(16, 64)).float().square().mean()
            loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=kind != "keeps gradients")
        print(kind, float(loss.detach()).hex(), flush=True)
    digest = hashlib.sha256()
    for tensor in (*model.state_dict().values(), *(p.grad for p in model.parameters())):
        digest.update(b"" if tensor is None else tensor.detach().numpy().tobytes())
    print(kind, digest.hexdigest(), flush=True)


for kind in sys.argv[2:]:
    train(kind, int(sys.argv[1]))
