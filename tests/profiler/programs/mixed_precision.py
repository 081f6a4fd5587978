"""Scaled gradients; the third step is skipped because they overflowed."""

import torch
from common import BATCH, dataset, network, show
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

model = network()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
for number, (features, labels) in enumerate(DataLoader(dataset(), batch_size=BATCH)):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = cross_entropy(model(features), labels)
    optimizer.zero_grad()
    scaler.scale(loss * (float("inf") if number == 2 else 1.0)).backward()
    scaler.step(optimizer)
    scaler.update()
    show(loss)
