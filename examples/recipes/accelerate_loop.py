"""Accelerate: hops makes it save on the signal and resume. No line of this file is for hops."""

import argparse

import torch
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration, set_seed
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=30)
options = parser.parse_args()

set_seed(1)
accelerator = Accelerator(
    cpu=not torch.cuda.is_available(),
    project_config=ProjectConfiguration(project_dir="accelerate-run"),
)
data = TensorDataset(torch.randn(8192, 64), torch.randint(10, (8192,)))
model = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
model, optimizer, loader = accelerator.prepare(
    model,
    torch.optim.AdamW(model.parameters(), lr=1e-3),
    DataLoader(data, batch_size=128, shuffle=True),
)

for epoch in range(options.epochs):
    samples = 0
    for inputs, labels in loader:  # skips the batches of earlier runs
        loss = cross_entropy(model(inputs), labels)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        samples += len(labels)
    if samples and accelerator.is_main_process:
        print(f"epoch {epoch} on {accelerator.num_processes} GPUs", flush=True)
