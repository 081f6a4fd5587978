"""An optimizer for each parameter that steps within the backward pass."""

import torch
from common import BATCH, dataset, network, show
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

model = network()
optimizers = {p: torch.optim.SGD([p], lr=1e-2) for p in model.parameters()}


def step(parameter: torch.Tensor) -> None:
    optimizers[parameter].step()
    optimizers[parameter].zero_grad()


for p in model.parameters():
    p.register_post_accumulate_grad_hook(step)
for features, labels in DataLoader(dataset(), batch_size=BATCH):
    loss = cross_entropy(model(features), labels)
    loss.backward()
    show(loss)
