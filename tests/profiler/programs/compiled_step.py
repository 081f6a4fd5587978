"""A whole training step as one compiled function: only its input batches can be observed."""

import torch
from common import BATCH, dataset, network, show
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

model = network()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)


@torch.compile(backend="aot_eager")
def train(features: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    optimizer.zero_grad()
    loss = cross_entropy(model(features), labels)
    loss.backward()
    optimizer.step()
    return loss


for features, labels in DataLoader(dataset(), batch_size=BATCH):
    show(train(features, labels).detach())
