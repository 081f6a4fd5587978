from pathlib import Path

import torch
from accelerate import Accelerator
from common import BATCH, dataset, network, show
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

accelerator = Accelerator(cpu=True)
model, optimizer, loader = accelerator.prepare(
    model := network(),
    torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9),
    DataLoader(dataset(), batch_size=BATCH),
)
checkpoints = sorted(Path().glob("step_*"))
batch_count = 0
if checkpoints:
    batch_count = int(checkpoints[-1].name.partition("_")[2])
    accelerator.load_state(str(checkpoints[-1]))
    loader = accelerator.skip_first_batches(loader, batch_count)
for features, labels in loader:
    loss = cross_entropy(model(features), labels)
    show(loss.detach())
    optimizer.zero_grad()
    accelerator.backward(loss)
    optimizer.step()
    batch_count += 1
    if batch_count % 10 == 0:
        accelerator.save_state(f"step_{batch_count:03}")
