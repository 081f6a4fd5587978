"""Network and optimizer step compiled; the backend needs no C compiler."""

import torch
from common import BATCH, dataset, network, show
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

model = torch.compile(network(), backend="aot_eager", fullgraph=True)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)


@torch.compile(backend="aot_eager")
def step() -> None:
    optimizer.step()


for features, labels in DataLoader(dataset(), batch_size=BATCH):
    loss = cross_entropy(model(features), labels)
    optimizer.zero_grad()
    loss.backward()
    step()
    show(loss)
