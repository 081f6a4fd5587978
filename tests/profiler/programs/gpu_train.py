"""Trainings that must notice neither a lane nor the plugin: ``gpu_train.py ITERATIONS KIND ...``.

Prints every loss and, at the end, a digest of the weights, so that two runs can be compared.
"""

from __future__ import annotations

import hashlib
import os
import sys
from typing import Any

import torch
from torch import nn

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
torch.use_deterministic_algorithms(True)
WIDTH, BATCH = 2048, 64


class Attention(nn.Module):
    """Uses the weights of another module."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, 8, dropout=0.1, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.unsqueeze(0)
        return self.attention(x, x, x, need_weights=False)[0].squeeze(0)


def network(kind: str) -> nn.Module:
    if kind == "convolution":
        return nn.Sequential(
            nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 256, 3), nn.BatchNorm2d(256), nn.ReLU(),
            nn.Flatten(), nn.Linear(256 * 36, 512), nn.Dropout(0.1), nn.Linear(512, 4),
        )  # fmt: skip
    middle = Attention() if kind == "attention" else nn.Linear(WIDTH, WIDTH)
    return nn.Sequential(nn.Linear(64, WIDTH), middle, nn.ReLU(), nn.Dropout(0.1),
                         nn.Linear(WIDTH, 4))  # fmt: skip


def optimizer_of(kind: str, model: nn.Module) -> torch.optim.Optimizer:
    if kind == "sgd":
        return torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    options = {"fused": {"fused": True}, "capturable": {"capturable": True}}
    return torch.optim.Adam(model.parameters(), **options.get(kind, {}))


def train(kind: str, iterations: int) -> None:
    torch.manual_seed(0)
    model: Any = network(kind).cuda()
    optimizer = optimizer_of(kind, model)
    half = kind == "half"
    scaler = torch.amp.GradScaler("cuda", enabled=half)
    forward = model
    if kind == "compiled":
        forward = torch.compile(model)
    elif kind == "graph":
        forward = torch.cuda.make_graphed_callables(model, (torch.randn(BATCH, 64).cuda(),))
    for _ in range(iterations):
        for _ in range(3 if kind == "accumulate" else 1):
            with torch.autocast("cuda", torch.float16, enabled=half):
                loss = forward(torch.randn(BATCH, 64, device="cuda")).float().square().mean()
            scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=kind != "keeps gradients")
        print(kind, float(loss.detach()).hex(), flush=True)
    digest = hashlib.sha256()
    for tensor in (*model.state_dict().values(), *(p.grad for p in model.parameters())):
        digest.update(b"" if tensor is None else tensor.detach().cpu().numpy().tobytes())
    print(kind, digest.hexdigest(), flush=True)


for kind in sys.argv[2:]:
    train(kind, int(sys.argv[1]))
