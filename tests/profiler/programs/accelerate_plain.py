"""A plain loop without `accumulate`; the file `batch` has the batch size. ``stop``: dies in the
second step; ``leave``: gets hops' signal in the third; ``count``: ends by its own count.
"""

import os
import signal
from pathlib import Path

from accelerate import Accelerator
from accelerate.utils import set_seed
from common import dataset, network
from torch.nn.functional import cross_entropy
from torch.optim import SGD
from torch.utils.data import DataLoader, Subset

accelerator = Accelerator(cpu=True)
set_seed(3)
model = network()
model, optimizer, loader = accelerator.prepare(
    model,
    SGD(model.parameters(), lr=1e-2, momentum=0.9),
    DataLoader(
        Subset(dataset(), range(40)), batch_size=int(Path("batch").read_text()), shuffle=True
    ),
)
step_count = 0
mode = Path("how").read_text()


def train(features, labels) -> None:
    loss = cross_entropy(model(features), labels)
    accelerator.backward(loss)
    accelerator.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
    optimizer.zero_grad()


if mode == "count":
    for _epoch in range(9):
        for features, labels in loader:
            train(features, labels)
            step_count += 1
            if step_count == 7:
                break
for _epoch in range(2):
    for features, labels in loader:
        train(features, labels)
        step_count += 1
        if mode == "stop" and step_count == 2:
            os._exit(3)
        if mode == "leave" and step_count == 3:
            os.kill(os.getpid(), signal.SIGUSR1)
print(len(loader), *(repr(float(p.detach().double().sum())) for p in model.parameters()))
