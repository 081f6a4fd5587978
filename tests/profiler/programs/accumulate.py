"""Four batches per step, and an evaluation after every tenth step."""

import torch
from common import BATCH, ITERATIONS, dataset, network, show
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

model = network()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
loader = DataLoader(dataset(4 * ITERATIONS), batch_size=BATCH)
for number, (features, labels) in enumerate(loader, start=1):
    loss = cross_entropy(model(features), labels) / 4
    loss.backward()
    if number % 4 == 0:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        show(loss)
    if number % 40 == 0:
        with torch.no_grad():
            show(sum(cross_entropy(model(f), y) for f, y in DataLoader(dataset(), batch_size=64)))
