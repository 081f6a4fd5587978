"""A plain training loop: one process, no launcher, no hook for any scheduler.

    sbatch --comment=hops:reqs=1 --wrap 'python3 examples/plain.py'

It keeps no checkpoint; with ``preempt=no`` in the comment it is never interrupted.
"""

from __future__ import annotations

import sys

import torch
from models import EXAMPLES
from torch.utils.data import DataLoader

example = EXAMPLES["mlp"]
epochs = int(sys.argv[1]) if len(sys.argv) > 1 else 2
torch.set_num_threads(1)
torch.manual_seed(1)
device = "cuda" if torch.cuda.is_available() else "cpu"
model = example.build().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=example.lr, momentum=0.9)

for epoch in range(epochs):
    total = 0.0
    loader = DataLoader(example.dataset(), batch_size=32, shuffle=True)
    for features, labels in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(features.to(device)), labels.to(device))
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"epoch {epoch} loss {total / len(loader):.4f}", flush=True)
